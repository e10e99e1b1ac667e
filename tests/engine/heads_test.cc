// Heads that guess tokens (EAGLE-3), and the hidden states that models give to them, against the same in double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/made_heads.h"
#include "engine/sequences.h"
#include "formats/test_files.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

constexpr int64_t kGuessed = 80;
constexpr double kStateTolerance = 0.015;  // of states whose standard deviation is an eighth: kTolerance of a logit's

double most_off(std::span<const float> got, const DoubleRows& want, size_t row) {
  double most = 0;
  for (size_t i = 0; i < want[row].size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(got[i]) - want[row][i]));
  return most;
}

EngineOptions options_of(const std::filesystem::path& model, const std::string& device) {
  EngineOptions options = fixture_options(model.string(), device);
  options.max_step_tokens = options.max_logits_rows = 64;
  options.max_seqs = 2;
  if (device == "metal" && !soak()) options.max_step_tokens = options.max_logits_rows = 4;
  return options;
}

// A model with the head that was made for it.
class Heads : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    INGOT_SKIP_WITHOUT_CUDA(GetParam());
    if (GetParam() == "metal") test::metal_in_asked_mode();
    target_ = random_target(3);
    target_.write(folder_ / "model");
    ids_ = random_ids(device_is_slow() ? 8 : 24, target_.vocab, 5);
  }
  bool device_is_slow() const { return GetParam() == "metal" && !soak(); }

  std::unique_ptr<Engine> target(bool with_states = true) const {
    EngineOptions options = options_of(folder_ / "model", GetParam());
    options.gives_states = with_states;
    options.state_layers = {0, 2, 3};
    return Engine::load(options);
  }
  std::unique_ptr<Engine> head(const MadeModel& made) const {
    made.write(folder_ / "head");
    EngineOptions options = options_of(folder_ / "head", GetParam());
    options.head_of = (folder_ / "model").string();
    return Engine::load(options);
  }

  TempDir folder_;
  MadeModel target_;
  std::vector<int32_t> ids_;
};

// The rows of a sequence in steps of at most `chunk`: what `Step::states` gives of every other row, or of all.
std::vector<float> states_of(Engine& engine, const std::vector<int32_t>& ids, size_t chunk, bool half = false) {
  StepBuilder builder(engine.limits().block_size);
  const std::vector<int32_t> blocks = assign_blocks(engine.limits(), 1, std::ssize(ids), 5)[0];
  std::vector<float> states;
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const size_t rows = std::min(chunk, ids.size() - at);
    builder.clear();
    builder.add(std::span(ids).subspan(at, rows), static_cast<int64_t>(at), blocks);
    for (size_t row = 0; row < rows; ++row)
      if (!half || (at + row) % 2 == 1) builder.step().state_rows.push_back(static_cast<int32_t>(row));
    const StepResult result = engine.run(builder.finish());
    EXPECT_EQ(result.stats.submissions, 1u);
    EXPECT_EQ(result.stats.waits, 1u);
    EXPECT_EQ(result.stats.encode_readbacks + result.stats.encode_allocations + result.stats.encode_waits, 0u);
    states.insert(states.end(), result.states.begin(), result.states.end());
  }
  return states;
}

TEST_P(Heads, AModelGivesItsStates) {
  const std::unique_ptr<Engine> engine = target();
  ASSERT_EQ(engine->limits().state_width, 3 * target_.hidden);
  const auto most = static_cast<size_t>(engine->limits().max_step_tokens);
  const std::vector<float> states = states_of(*engine, ids_, most);
  const std::vector<DoubleRows> streams = reference_streams(target_, ids_);
  ASSERT_EQ(states.size(), ids_.size() * 192);
  for (size_t t = 0; t < ids_.size(); ++t)
    for (size_t i = 0; i < 3; ++i) {
      const std::span row(states.data() + t * 192 + i * 64, 64);
      const int layer = std::vector<int>{0, 2, 3}[i];
      EXPECT_LT(most_off(row, streams[static_cast<size_t>(layer)], t), kStateTolerance) << t << " layer " << layer;
      if (layer > 0) {
        EXPECT_GT(most_off(row, streams[static_cast<size_t>(layer - 1)], t), 10 * kStateTolerance) << "would be seen";
      }
    }
  // The same bits in other steps, and of some rows alone.
  EXPECT_EQ(states_of(*engine, ids_, 1), states);
  const std::vector<float> half = states_of(*engine, ids_, 3, true);
  for (size_t t = 1; t < ids_.size(); t += 2)
    EXPECT_TRUE(std::equal(half.begin() + static_cast<int64_t>(t / 2 * 192),
                           half.begin() + static_cast<int64_t>(t / 2 * 192 + 192),
                           states.begin() + static_cast<int64_t>(t * 192)))
        << t;
  // And the text is that of a model that gives none.
  EXPECT_EQ(run_alone(*engine, ids_), run_alone(*target(false), ids_));
}

struct Given {
  std::vector<int32_t> ids;
  std::vector<float> states;  // of the model, then the head's own
  size_t of_model = 0;        // rows
};

struct Got {
  std::vector<float> own;
  Logits logits;
};

// A head's rows: those of the model's states in steps of at most `chunk`, then its own one by one.
Got run_head(Engine& engine, const Given& given, size_t chunk) {
  const auto wide = static_cast<size_t>(engine.limits().reads_width),
             narrow = static_cast<size_t>(engine.limits().state_width);
  StepBuilder builder(engine.limits().block_size);
  const std::vector<int32_t> blocks = assign_blocks(engine.limits(), 1, std::ssize(given.ids), 5)[0];
  Got got;
  size_t from = 0;
  for (size_t at = 0; at < given.ids.size();) {
    const bool own = at >= given.of_model;
    const size_t rows = own ? 1 : std::min(chunk, given.of_model - at), width = own ? narrow : wide;
    builder.clear();
    builder.add(std::span(given.ids).subspan(at, rows), static_cast<int64_t>(at), blocks);
    Step& step = builder.step();
    step.given_width = static_cast<int32_t>(width);
    step.states.assign(given.states.begin() + static_cast<int64_t>(from),
                       given.states.begin() + static_cast<int64_t>(from + rows * width));
    for (size_t row = 0; row < rows; ++row) {
      builder.sample(static_cast<int32_t>(row), {.temperature = 0}, -1, {.kind = RowOutput::Kind::full_logits});
      step.state_rows.push_back(static_cast<int32_t>(row));
    }
    const StepResult result = engine.run(builder.finish());
    EXPECT_EQ(result.stats.submissions, 1u);
    got.own.insert(got.own.end(), result.states.begin(), result.states.end());
    for (const RowResult& row : result.rows) got.logits.push_back(row.logits);
    from += rows * width;
    at += rows;
  }
  return got;
}

TEST_P(Heads, AHeadComputesWhatItsDefinitionSays) {
  for (const bool norm_before : {false, true}) {
    if (norm_before && device_is_slow()) continue;  // the same kernels
    const MadeModel made = random_head(11, kGuessed, norm_before);
    const std::unique_ptr<Engine> engine = head(made);
    EXPECT_EQ(engine->limits().reads_width, 192);
    EXPECT_EQ(engine->limits().state_width, 64);
    EXPECT_EQ(engine->limits().vocab, kGuessed);
    EXPECT_EQ(engine->limits().token_ids, target_.vocab);
    ASSERT_EQ(engine->model().guessed_ids.size(), static_cast<size_t>(kGuessed));
    EXPECT_EQ(engine->model().guessed_ids[7], 14);
    Given given{.ids = ids_, .states = {}, .of_model = ids_.size() - 3};
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    while (given.states.size() < given.of_model * 192 + 3 * 64) given.states.push_back(normal(random));
    const Got got = run_head(*engine, given, static_cast<size_t>(engine->limits().max_step_tokens));

    DoubleRows states;
    for (size_t t = 0; t < given.of_model; ++t)
      states.emplace_back(given.states.begin() + static_cast<int64_t>(t * 192),
                          given.states.begin() + static_cast<int64_t>(t * 192 + 192));
    states = reference_read(made, states);
    for (size_t t = 0; t < 3; ++t) {
      const auto begin = given.states.begin() + static_cast<int64_t>(given.of_model * 192 + t * 64);
      states.emplace_back(begin, begin + 64);
    }
    const HeadRows want = reference_head(made, rows_of(target_.at("model.embed_tokens.weight"), ids_), states);
    double square = 0;
    ASSERT_EQ(got.logits.size(), ids_.size());
    for (size_t t = 0; t < ids_.size(); ++t) {
      EXPECT_LT(most_off(got.logits[t], want.logits, t), kTolerance) << t;
      EXPECT_LT(most_off(std::span(got.own.data() + t * 64, 64), want.own, t), kTolerance) << t;
      for (const double logit : want.logits[t]) square += logit * logit / static_cast<double>(kGuessed * ids_.size());
    }
    EXPECT_GT(square, 0.5) << "logits that small would hide a mistake";
    // One row a step: the same bits.
    const Got again = run_head(*engine, given, 1);
    EXPECT_EQ(again.own, got.own);
    EXPECT_EQ(again.logits, got.logits);
  }
}

// The same of the MTP layer of a MiMo, which is a Qwen 2 else: what it reads, and what it makes of that.
TEST_P(Heads, AnMtpLayerComputesWhatItsDefinitionSays) {
  const MadeModel made = random_mimo(21);
  made.write(folder_ / "mimo");
  EngineOptions options = options_of(folder_ / "mimo", GetParam());
  options.gives_states = true;
  options.state_layers = Engine::head_needs(options.model, options.model)->state_layers;
  EXPECT_EQ(options.state_layers, std::vector<int>{4});
  EXPECT_FALSE(Engine::head_needs(options.model).has_value()) << "beside another model it is a model";
  const std::unique_ptr<Engine> model = Engine::load(options);
  const auto most = static_cast<size_t>(model->limits().max_step_tokens);
  ASSERT_EQ(model->limits().state_width, 64);
  const std::vector<float> states = states_of(*model, ids_, most);
  const DoubleRows final_rows = reference_final(made, ids_);
  for (size_t t = 0; t < ids_.size(); ++t)
    EXPECT_LT(most_off(std::span(states).subspan(t * 64, 64), final_rows, t), kTolerance) << t;
  EXPECT_EQ(states_of(*model, ids_, 1), states);

  options.gives_states = false;
  options.state_layers = {};
  const Logits text = run_alone(*Engine::load(options), ids_);
  EXPECT_EQ(run_alone(*model, ids_), text);
  if (GetParam() == "cpu") {
    MadeModel other = made;  // the same without the layers that guess
    other.architecture = "Qwen2ForCausalLM";
    other.extra = "";
    std::erase_if(other.tensors, [](const auto& tensor) { return tensor.first.starts_with("model.mtp_layers."); });
    other.write(folder_ / "other");
    EXPECT_EQ(run_alone(*Engine::load(options_of(folder_ / "other", "cpu")), ids_), text);
  }

  options.head_of = options.model;
  const std::unique_ptr<Engine> head = Engine::load(options);
  EXPECT_EQ(head->limits().reads_width, 64);
  EXPECT_EQ(head->limits().state_width, 64);
  Given given{.ids = ids_, .states = {}, .of_model = ids_.size() - 3};
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  DoubleRows read;
  for (size_t t = 0; t < ids_.size(); ++t) {
    read.emplace_back();
    for (int i = 0; i < 64; ++i) {
      given.states.push_back(normal(random));
      read.back().push_back(given.states.back());
    }
  }
  const Got got = run_head(*head, given, most);
  const HeadRows want = reference_mtp(made, rows_of(made.at("model.embed_tokens.weight"), ids_), read);
  ASSERT_EQ(got.logits.size(), ids_.size());
  for (size_t t = 0; t < ids_.size(); ++t) {
    EXPECT_LT(most_off(got.logits[t], want.logits, t), kTolerance) << t;
    EXPECT_LT(most_off(std::span(got.own.data() + t * 64, 64), want.own, t), kTolerance) << t;
  }
  const Got again = run_head(*head, given, 1);
  EXPECT_EQ(again.own, got.own);
  EXPECT_EQ(again.logits, got.logits);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Heads, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Metal, Heads, ::testing::ValuesIn(unless_sanitized<std::string>({"metal"}, {})));
INSTANTIATE_TEST_SUITE_P(Cuda, Heads, ::testing::Values("cuda"));

// Names under which heads were published, an embedding of their own, and 8-bit weights.
TEST(HeadFiles, OtherNamesAndAnEmbeddingOfItsOwn) {
  const TempDir folder;
  const MadeModel target = random_target(3);
  target.write(folder / "model");
  MadeModel made = random_head(11, kGuessed);
  const auto logits = [&](const MadeModel& head, const std::string& quantize = "") {
    head.write(folder / "head");
    EngineOptions options = options_of(folder / "head", "cpu");
    options.head_of = (folder / "model").string();
    options.quantize = quantize;
    const std::unique_ptr<Engine> engine = Engine::load(options);
    Given given{.ids = random_ids(6, target.vocab, 2), .states = std::vector<float>(6 * 192, 0.5f), .of_model = 6};
    return run_head(*engine, given, 64).logits;
  };
  const Logits want = logits(made);
  EXPECT_LT(max_difference(logits(made, "int8"), want), kQuantizedTolerance);
  MadeModel renamed = made;
  renamed.architecture = "Eagle3LlamaForCausalLM";
  renamed.tensors.clear();
  for (const auto& [name, tensor] : made.tensors) {
    const bool layer = name.starts_with("midlayer.");
    renamed.tensors[layer                      ? "model.layers.0." + name.substr(9)
                    : name == "lm_head.weight" ? name
                                               : "model." + name] = tensor;
  }
  EXPECT_EQ(logits(renamed), want);
  made.tensors["embed_tokens.weight"] = target.at("model.embed_tokens.weight");
  EXPECT_EQ(logits(made), want);
  for (float& value : made.tensors["embed_tokens.weight"].values) value = -value;
  EXPECT_NE(logits(made), want) << "its own";
}

TEST(HeadFiles, WhatDoesNotFitIsDeclined) {
  const TempDir folder;
  random_target(3).write(folder / "model");
  const auto refused = [&](MadeModel head, ErrorKind kind, const std::string& words, bool beside = true,
                           const std::string& extra = "") {
    head.extra += extra;
    head.write(folder / "head");
    EngineOptions options = options_of(folder / "head", "cpu");
    if (beside) options.head_of = (folder / "model").string();
    expect_error(kind, words, [&] { Engine::load(options); });
  };
  const MadeModel good = random_head(11, kGuessed);
  refused(good, ErrorKind::declined, "makes no text by itself; give it beside that model: --draft-model", false);
  MadeModel head = good;
  head.d2t.clear();
  refused(head, ErrorKind::bad_file, "tensor d2t is missing");
  head = good;
  head.d2t[5] = 300;
  refused(head, ErrorKind::bad_file, "token 5 would be 5 + 300, outside the vocabulary of 211");
  head = good;
  head.d2t.pop_back();
  refused(head, ErrorKind::bad_file, "tensor d2t must be 80 numbers of type I64");
  head = good;
  head.layers = 2;
  refused(head, ErrorKind::declined, "an EAGLE-3 head of 2 layers is not run here");
  head = good;
  head.vocab = 400;
  refused(head, ErrorKind::declined, "it reads an embedding of 400 tokens by 64");
  head = good;
  head.tensors.erase("fc.weight");
  refused(head, ErrorKind::bad_file, "fc.weight is missing");
  refused(good, ErrorKind::bad_file, "fc.weight: its shape is [64, 192], the configuration asks for [64, 240]", true,
          R"(, "target_hidden_size": 80)");
  refused(good, ErrorKind::declined, "packed ones", true, R"(, "quantization_config": {"quant_method": "awq"})");
  head = good;
  head.extra = R"(, "draft_vocab_size": 80, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]})";
  refused(head, ErrorKind::declined, "a head that reads 2 layers of its model");
  head.extra = R"(, "draft_vocab_size": 80, "eagle_config": {"use_aux_hidden_state": false})";
  refused(head, ErrorKind::declined, "use_aux_hidden_state false");
  refused(good, ErrorKind::bad_file, "target_hidden_size 4611686018427387904 is impossible", true,
          R"(, "target_hidden_size": 4611686018427387904)");
  head.extra =
      R"(, "draft_vocab_size": 80, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 9223372036854775807]})";
  refused(head, ErrorKind::bad_file, "has 9223372036854775807, which is no layer");
  // And a model where a head should be, or one that cannot give its states.
  EngineOptions options = options_of(folder / "model", "cpu");
  options.head_of = options.model;
  expect_error(ErrorKind::bad_call, "is no head", [&] { Engine::load(options); });
  options.head_of = "";
  options.gives_states = true;
  options.state_layers = {1, 2, 4};
  expect_error(ErrorKind::declined, "what enters layer 4", [&] { Engine::load(options); });
  options.state_layers = {};
  EXPECT_EQ(Engine::load(options)->limits().state_width, 3 * 64);  // the second, the middle, the third from the end
}

TEST(HeadFiles, AHeadSaysWhatItNeeds) {
  const TempDir folder;
  random_target(3).write(folder / "model");
  random_head(11, kGuessed).write(folder / "head");
  successor_head(211, 0).write(folder / "other");
  EXPECT_FALSE(Engine::head_needs((folder / "model").string()).has_value());
  EXPECT_EQ(Engine::head_needs((folder / "head").string())->state_layers, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(Engine::head_needs((folder / "other").string())->state_layers, (std::vector<int>{1, 2, 3}))
      << "counted by outputs";
}

// A step says what states it is about; one that does not is refused and changes nothing.
TEST(HeadFiles, StepsWithoutStatesOrWithWrongOnes) {
  const TempDir folder;
  random_target(3).write(folder / "model");
  random_head(11, kGuessed).write(folder / "head");
  EngineOptions options = options_of(folder / "head", "cpu");
  options.head_of = (folder / "model").string();
  const std::unique_ptr<Engine> head = Engine::load(options), model = Engine::load(options_of(folder / "model", "cpu"));
  const auto refused = [](Engine& engine, int32_t token, int32_t width, size_t states, std::vector<int32_t> rows,
                          const std::string& words) {
    StepBuilder builder(engine.limits().block_size);
    const int32_t block = 0;
    builder.add({&token, 1}, 0, {&block, 1});
    builder.step().given_width = width;
    builder.step().states.assign(states, 0.0f);
    builder.step().state_rows = std::move(rows);
    const Step step = builder.finish();
    expect_error(ErrorKind::bad_call, words, [&] { engine.run(step); });
  };
  refused(*head, 1, 0, 0, {}, "given_width: is 0, but a head reads states of 192, or its own of 64");
  refused(*head, 1, 100, 100, {}, "given_width: is 100");
  refused(*head, 1, 192, 191, {}, "states: has 191 entries");
  refused(*head, 211, 64, 64, {}, "token_ids[0]: 211 is outside [0, 211)");
  refused(*head, 1, 64, 64, {1}, "state_rows[0]: 1 is outside [0, 1)");
  refused(*head, 1, 64, 64, {0, 0}, "state_rows[1]: 0 is outside [1, 1)");
  refused(*model, 1, 192, 192, {}, "given_width: is 192");
  refused(*model, 1, 0, 0, {0}, "this engine gives no hidden states");
  StepBuilder builder(head->limits().block_size);
  const int32_t token = 200, block = 0;
  builder.add({&token, 1}, 0, {&block, 1});
  builder.step().given_width = 64;
  builder.step().states.assign(64, 1.0f);
  builder.sample(0, {.temperature = 0});
  EXPECT_GE(head->run(builder.finish()).rows[0].token, 0);
}

}  // namespace
}  // namespace ingot::testing
