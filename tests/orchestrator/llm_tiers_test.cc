// The prefix cache below the device: host memory and files, over restarts, preemptions and failures. Every answer is
// the one that a model without any cache gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "backend/backend.h"
#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/internals.h"
#include "formats/test_files.h"
#include "orchestrator/llm_rig.h"
#include "soak.h"

namespace ingot::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 8;

struct PlainLlm {  // without any cache
  explicit PlainLlm(const std::string& model, const std::string& kv_dtype = "f16", const std::string& device = "cpu",
                    int64_t max_model_len = 96) {
    LlmOptions options = tiny_options(model);
    options.engine.kv_dtype = kv_dtype;
    options.engine.device = device;
    options.engine.max_model_len = max_model_len;
    options.engine.kv_blocks = std::max(options.engine.kv_blocks, max_model_len / kBlock + 1);
    options.prefix_caching = false;
    llm = std::make_unique<Llm>(Engine::load(options.engine), nullptr, options);
  }
  std::vector<int32_t> tokens(const std::vector<int32_t>& prompt, int64_t count) {
    return answer(*llm, greedy(prompt, count))[0].token_ids;
  }
  std::unique_ptr<Llm> llm;
};

LlmOptions with_files(const fs::path& dir, const std::string& model = "llama-bf16-llama3") {
  LlmOptions options = tiny_options(model);
  options.engine.host_cache_bytes = 4 << 20;
  options.prefix_dir = dir.string();
  options.warn = [](const std::string& line) { ADD_FAILURE() << line; };
  return options;
}

std::unique_ptr<Llm> make(const LlmOptions& options) {
  return std::make_unique<Llm>(Engine::load(options.engine), nullptr, options);
}

struct Told {
  std::vector<int32_t> tokens;
  GenerationSummary summary;
};
Told ask(Llm& llm, GenerationRequest request) {
  const std::shared_ptr<Generation> generation = llm.submit(std::move(request));
  const std::vector<Choice> choices = collect(*generation);
  return {choices[0].token_ids, generation->summary()};
}

// Prompt and answer, as the next turn of a conversation has them.
std::vector<int32_t> joined(std::vector<int32_t> prompt, const std::vector<int32_t>& more) {
  prompt.insert(prompt.end(), more.begin(), more.end());
  return prompt;
}

struct CacheKind {
  const char* model;
  const char* kv_dtype;
  int64_t positions = 96;
};
class LlmTiers : public ::testing::TestWithParam<CacheKind> {};

TEST_P(LlmTiers, ARestartFindsPromptsAndAnswersAgain) {
  const auto& [model, kv_dtype, positions] = GetParam();
  PlainLlm plain(model, kv_dtype, "cpu", positions);
  const TempDir dir;
  LlmOptions options = with_files(dir.path() / "cache", model);
  options.engine.kv_dtype = kv_dtype;
  options.engine.max_model_len = positions;
  const int32_t length = positions < 96 ? 28 : 44, known = length / kBlock * kBlock;
  const std::vector<int32_t> prompt = random_ids(length, plain.llm->limits().vocab, 3);
  const std::vector<int32_t> expected = plain.tokens(prompt, 20);
  {
    const std::unique_ptr<Llm> llm = make(options);
    const Told first = ask(*llm, greedy(prompt, 20));
    EXPECT_EQ(first.tokens, expected);
    EXPECT_EQ(first.summary.cached_tokens, 0);
    expect_clean(*llm);
  }
  const std::unique_ptr<Llm> llm = make(options);
  const Told again = ask(*llm, greedy(prompt, 20));
  EXPECT_EQ(again.tokens, expected);
  EXPECT_EQ(again.summary.cached_tokens, known);
  EXPECT_EQ(llm->stats().prefix_disk_hits, static_cast<uint64_t>(known));
  // The next turn: what was generated is known too. Its last token was never computed.
  const std::vector<int32_t> turn = joined(joined(prompt, expected), random_ids(5, plain.llm->limits().vocab, 8));
  const std::unique_ptr<Llm> third = make(options);
  const Told next = ask(*third, greedy(turn, 6));
  EXPECT_EQ(next.tokens, plain.tokens(turn, 6));
  EXPECT_EQ(next.summary.cached_tokens, (length + 19) / kBlock * kBlock);
  EXPECT_EQ(third->stats().blocks_damaged, 0u);
  expect_clean(*third);
}

TEST_P(LlmTiers, WhatLeavesTheDeviceComesBackFromHostMemory) {
  const auto& [model, kv_dtype, positions] = GetParam();
  PlainLlm plain(model, kv_dtype, "cpu", positions);
  LlmOptions options = tiny_options(model);
  options.engine.kv_dtype = kv_dtype;
  options.engine.max_model_len = positions;
  options.engine.kv_blocks = positions / kBlock;  // one sequence
  const int32_t length = positions < 96 ? 44 : 60, known = length / kBlock * kBlock;
  options.engine.host_cache_bytes = 4 << 20;
  const std::unique_ptr<Llm> llm = make(options);
  for (int round = 0; round < 3; ++round)
    for (uint32_t i = 0; i < 4; ++i) {
      const std::vector<int32_t> prompt = random_ids(length, llm->limits().vocab, 20 + i);
      const Told told = ask(*llm, greedy(prompt, 10));
      EXPECT_EQ(told.tokens, plain.tokens(prompt, 10));
      EXPECT_EQ(told.summary.cached_tokens, round == 0 ? 0 : known) << i;
    }
  const LlmStats stats = llm->stats();
  EXPECT_GT(stats.prefix_host_hits, 7u * static_cast<uint64_t>(known))
      << "what is not on the device at the time: most of it";
  EXPECT_GT(stats.host_saved_bytes, 0u);
  EXPECT_GT(stats.host_loaded_bytes, stats.host_saved_bytes);
  EXPECT_EQ(stats.blocks_lost, 0u);
  expect_clean(*llm);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LlmTiers,
                         ::testing::Values(CacheKind{"llama-bf16-llama3", "f16"},
                                           CacheKind{"llama-bf16-llama3", "int8"},
                                           CacheKind{"mistral-bf16-window", "f16"}, CacheKind{"gemma3-bf16", "bf16"},
                                           CacheKind{"granite-bf16", "f32"}, CacheKind{"qwen3-bf16", "f16"},
                                           CacheKind{"gpt2-bf16", "f16", 64}, CacheKind{"qwen2-window-bf16", "int8"},
                                           CacheKind{"qwen3moe-bf16", "int8"}, CacheKind{"smollm3-bf16", "bf16"}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.model) + "_" + info.param.kv_dtype;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class LlmTiersOn : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    INGOT_SKIP_WITHOUT_CUDA(GetParam());
    if (GetParam() == "metal") test::metal_in_asked_mode();
  }
};

// One that others push out again and again, and that never computes its text anew: the answer of one that never was.
TEST_P(LlmTiersOn, PreemptedAgainAndAgain) {
  PlainLlm plain("llama-bf16-llama3", "f16", GetParam());
  LlmOptions options = tiny_options();
  options.engine.device = GetParam();
  options.engine.kv_blocks = 14;
  options.engine.max_model_len = 96;
  options.engine.host_cache_bytes = 4 << 20;
  const std::unique_ptr<Llm> llm = make(options);
  const std::vector<int32_t> prompt = random_ids(10, llm->limits().vocab, 1);
  // A hundred take seven seconds, on the software device half a minute.
  const int32_t few = GetParam() == "metal" ? 5 : test::kSanitized ? 10 : 25, wanted = test::soak() ? 100 : few;
  int32_t preemptions = 0;
  for (uint32_t round = 0; preemptions < wanted; ++round) {
    ASSERT_LT(round, 60u) << preemptions;
    GenerationRequest slow = greedy(joined(prompt, {static_cast<int32_t>(round)}), 84);
    slow.sampling.temperature = 1.0f;
    slow.sampling.seed = round;
    slow.priority = 1;
    const std::vector<int32_t> expected = answer(*plain.llm, slow)[0].token_ids;
    // Others grow beside it until there are not enough blocks for both. The next one comes when it has a token and the
    // last one is done: on the step loop, so that nobody need be quick.
    std::mutex mutex;
    std::shared_ptr<Generation> other;
    bool is_over = false;
    const std::shared_ptr<Generation> generation = llm->submit(slow, [&, i = 0u]() mutable {
      const std::lock_guard lock(mutex);
      if (is_over || (other && !other->done())) return;
      other = llm->submit(greedy(random_ids(40, llm->limits().vocab, 100 + i++ % 7), 50));
    });
    EXPECT_EQ(collect(*generation)[0].token_ids, expected) << round;
    preemptions += generation->summary().preemptions;
    {
      const std::lock_guard lock(mutex);
      is_over = true;
    }
    collect(*other);
    llm->check_integrity();  // by the step loop, which is done with what is above
  }
  EXPECT_GT(llm->stats().prefix_host_hits, 10u * static_cast<uint64_t>(wanted));
  expect_clean(*llm);
}

// The same of one sequence alone, which grows meanwhile: another comes whenever it goes on, and is given what it needs.
TEST_P(LlmTiersOn, OneSequenceIsPreemptedAHundredTimes) {
  const bool little = GetParam() == "metal" && !test::soak();
  const std::string model = little ? "llama-bf16-llama3" : "long-llama3-f16";  // whose kernels are there already
  const int64_t tokens = little ? 84 : test::unless_sanitized<int64_t>({1800}, {300})[0];
  const int32_t wanted = little ? 4 : test::unless_sanitized<int32_t>({100}, {10})[0];
  LlmOptions options = tiny_options(model);
  options.engine.device = GetParam();
  options.engine.max_model_len = tokens + 12;
  options.engine.kv_blocks = (tokens + 12) / kBlock + 1;
  GenerationRequest slow = greedy(random_ids(10, 67, 1), tokens);
  slow.sampling.temperature = 1.0f;
  slow.sampling.seed = 11;
  slow.priority = 1;
  slow.logprobs = 0;
  slow.speculate = false;  // a token at a time
  PlainLlm plain(model, "f16", GetParam(), tokens + 12);
  const Choice expected = answer(*plain.llm, slow)[0];
  options.engine.host_cache_bytes = 16 << 20;
  const std::unique_ptr<Llm> llm = make(options);
  const std::vector<int32_t> text = random_ids(static_cast<int32_t>(tokens), 67, 2);
  std::mutex mutex;
  std::shared_ptr<Generation> other;
  bool is_over = false;
  const std::shared_ptr<Generation> generation = llm->submit(slow, [&] {
    const std::lock_guard lock(mutex);
    if (is_over || (other && !other->done())) return;
    // One block is left for each that runs: the first that both of them want is too many.
    const LlmStats stats = llm->stats();
    const int64_t length = (stats.blocks_total - stats.blocks_used - 1) * kBlock;
    if (length < kBlock) return;
    other = llm->submit(greedy({text.begin(), text.begin() + std::min<int64_t>(length, std::ssize(text))}, 12));
  });
  const Choice got = collect(*generation)[0];
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  collect(*other);
  EXPECT_EQ(got.token_ids, expected.token_ids);
  ASSERT_EQ(got.scores.size(), expected.scores.size());
  for (size_t i = 0; i < got.scores.size(); ++i) EXPECT_EQ(got.scores[i].logprob, expected.scores[i].logprob) << i;
  EXPECT_GE(generation->summary().preemptions, wanted);
  EXPECT_GT(llm->stats().prefix_host_hits, static_cast<uint64_t>(wanted * kBlock));
  llm->check_integrity();  // by the step loop, which is done with what is above
  expect_clean(*llm);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LlmTiersOn, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Metal, LlmTiersOn, ::testing::ValuesIn(test::unless_sanitized<std::string>({"metal"}, {})));
INSTANTIATE_TEST_SUITE_P(Cuda, LlmTiersOn, ::testing::Values("cuda"));

TEST(LlmTiersAlone, SaltsAreWallsInFilesToo) {
  const TempDir dir;
  const LlmOptions options = with_files(dir.path() / "cache");
  GenerationRequest request = greedy(random_ids(44, 100, 3), 4);
  request.cache_salt = "a";
  const auto cached = [&](const std::string& salt, int64_t shared) {
    const std::unique_ptr<Llm> llm = make(options);
    request.cache_salt = salt;
    request.shared_tokens = shared;
    return ask(*llm, request).summary.cached_tokens;
  };
  EXPECT_EQ(cached("a", 16), 0);
  EXPECT_EQ(cached("a", 16), 40);
  EXPECT_EQ(cached("b", 16), 16) << "what is no secret";
  EXPECT_EQ(cached("c", 0), 0);
}

// With nothing more to do all that was computed goes to files, and no request has to come for it.
TEST(LlmTiersAlone, WhatWasComputedIsWrittenWhenAllIsQuiet) {
  const TempDir dir;
  const LlmOptions options = with_files(dir.path() / "cache");
  const std::unique_ptr<Llm> llm = make(options);
  // A file that is being renamed may be seen twice or not at all: a count is right when it is the one wanted.
  const auto files = [&] {
    int64_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir.path() / "cache/blocks"))
      count += entry.is_regular_file() && !entry.path().filename().string().starts_with("unfinished-");
    return count;
  };
  for (uint32_t round = 1; round <= 20; ++round) {
    ask(*llm, greedy(random_ids(90, llm->limits().vocab, round), 1));
    ASSERT_TRUE(test::eventually([&] { return files() == round * 11; }))
        << files() << " files, " << round * 11 << " blocks";
  }
  expect_clean(*llm);
}

// Files of another model, another format of the cache, another path of the CPU are not this one's.
TEST(LlmTiersAlone, FilesAreOfOneModelAndOneWayOfComputing) {
  const TempDir dir;
  LlmOptions options = with_files(dir.path() / "cache");
  const auto cached = [](const LlmOptions& options) {
    return ask(*make(options), greedy(random_ids(44, 100, 3), 4)).summary.cached_tokens;
  };
  EXPECT_EQ(cached(options), 0);
  LlmOptions other = options;
  other.engine.kv_dtype = "bf16";
  EXPECT_EQ(cached(other), 0);
  other = options;
  other.engine.isa = "portable";
  EXPECT_EQ(cached(other), 0);
  other = options;
  other.engine.block_size = 16;
  EXPECT_EQ(cached(other), 0);
  const fs::path copy = dir.path() / "model";
  fs::copy(options.engine.model, copy, fs::copy_options::recursive);
  other = options;
  other.engine.model = copy.string();
  EXPECT_EQ(cached(other), 40) << "the same bytes elsewhere";
  {
    std::fstream weights(copy / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    weights.seekg(-2, std::ios::end);
    const int byte = weights.get();
    weights.seekp(-2, std::ios::end);
    weights.put(static_cast<char>(byte ^ 1));
  }
  EXPECT_EQ(cached(other), 0) << "one bit of the weights";
  EXPECT_EQ(cached(options), 40);
}

TEST(LlmTiersAlone, DamagedFilesAreComputedAgain) {
  PlainLlm plain("llama-bf16-llama3");
  const TempDir dir;
  const LlmOptions options = with_files(dir.path() / "cache");
  const std::vector<int32_t> prompt = random_ids(70, plain.llm->limits().vocab, 3);
  const std::vector<int32_t> expected = plain.tokens(prompt, 8);
  EXPECT_EQ(ask(*make(options), greedy(prompt, 8)).tokens, expected);
  for (const auto& entry : fs::recursive_directory_iterator(dir.path() / "cache/blocks"))
    if (entry.path().filename().string().ends_with("-4"))
      std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(500).put('\x5a').put('\x5b');
  {
    const std::unique_ptr<Llm> llm = make(options);
    const Told told = ask(*llm, greedy(prompt, 8));
    EXPECT_EQ(told.tokens, expected);
    EXPECT_EQ(told.summary.cached_tokens, 4 * kBlock);
    EXPECT_EQ(llm->stats().blocks_damaged, 1u);
  }
  EXPECT_EQ(ask(*make(options), greedy(prompt, 8)).summary.cached_tokens, 64) << "and kept again";
}

// A folder that is not ours costs the folder, not the start.
TEST(LlmTiersAlone, GoesOnWithoutAFolderThatIsSomethingElse) {
  const TempDir dir;
  fs::create_directory(dir.path() / "photos");
  fs::permissions(dir.path() / "photos", fs::perms::owner_all);
  std::ofstream(dir.path() / "photos/cat.jpg") << "cat";
  LlmOptions options = with_files(dir.path() / "photos");
  std::vector<std::string> lines;
  options.warn = [&](const std::string& line) { lines.push_back(line); };
  const std::unique_ptr<Llm> llm = make(options);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("has other files in it"), std::string::npos) << lines[0];
  ask(*llm, greedy(random_ids(44, llm->limits().vocab, 3), 4));
  EXPECT_EQ(ask(*llm, greedy(random_ids(44, llm->limits().vocab, 3), 4)).summary.cached_tokens, 40);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path() / "photos"), fs::directory_iterator()), 1);
}

// Steps that fail take no wrong bytes to host memory or to files.
TEST(LlmTiersAlone, FailedStepsLeaveNothingBehind) {
  PlainLlm plain("llama-bf16-llama3");
  const TempDir dir;
  LlmOptions options = with_files(dir.path() / "cache");
  options.engine.kv_blocks = 24;
  std::vector<std::vector<int32_t>> prompts, expected;
  for (uint32_t i = 0; i < 6; ++i) {
    prompts.push_back(random_ids(60, plain.llm->limits().vocab, 50 + i));
    expected.push_back(plain.tokens(prompts.back(), 12));
  }
  for (int round = 0; round < 10; ++round) {
    FailingLlm failing(options);
    auto& [device, llm] = failing;
    std::vector<std::shared_ptr<Generation>> generations;
    for (size_t i = 0; i < prompts.size(); ++i) {
      generations.push_back(llm.submit(greedy(prompts[(i + static_cast<size_t>(round)) % 6], 12)));
      std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
      if (i % 2 == 1) device.inject_failure();
    }
    for (size_t i = 0; i < prompts.size(); ++i)
      if (const Choice choice = collect(*generations[i])[0]; choice.finish != FinishReason::error) {
        EXPECT_EQ(choice.token_ids, expected[(i + static_cast<size_t>(round)) % 6]) << round << " " << i;
      }
    for (size_t i = 0; i < prompts.size(); ++i)  // the last to be injected may hit the first of these
      if (const Choice choice = answer(llm, greedy(prompts[i], 12))[0]; choice.finish != FinishReason::error) {
        EXPECT_EQ(choice.token_ids, expected[i]) << round << " " << i;
      }
    expect_clean(llm);
  }
}

// Several in a row: those behind the first have been submitted, and were to fill blocks that others hoped to find.
TEST(LlmTiersAlone, FailuresInARowLeaveNothingBehind) {
  PlainLlm plain("llama-bf16-llama3");
  const TempDir dir;
  LlmOptions options = with_files(dir.path() / "cache");
  options.engine.kv_blocks = 40;
  const auto scored = [&](uint32_t i) {
    GenerationRequest request = greedy(random_ids(60, plain.llm->limits().vocab, 50 + i), 12);
    request.logprobs = 0;
    return request;
  };
  const auto logprobs = [](const Choice& choice) {
    std::vector<float> values;
    for (const TokenScore& score : choice.scores) values.push_back(score.logprob);
    return values;
  };
  std::vector<std::vector<float>> expected;
  for (uint32_t i = 0; i < 6; ++i) expected.push_back(logprobs(answer(*plain.llm, scored(i))[0]));
  for (int failures = 1; failures <= 5; ++failures) {
    FailingLlm failing(options);
    auto& [device, llm] = failing;
    LoopGate gate;
    std::vector<std::shared_ptr<Generation>> generations;
    generations.push_back(llm.submit(scored(0), gate.notify()));
    gate.wait_held();
    for (uint32_t i = 1; i < 6; ++i) generations.push_back(llm.submit(scored(i)));
    device.inject_failure(failures);
    gate.open();
    for (uint32_t i = 0; i < 6; ++i)
      if (const Choice choice = collect(*generations[i])[0]; choice.finish != FinishReason::error) {
        EXPECT_EQ(logprobs(choice), expected[i]) << failures << " " << i;
      }
    for (uint32_t i = 0; i < 6; ++i)
      EXPECT_EQ(logprobs(answer(llm, scored(i))[0]), expected[i]) << failures << " " << i;
    expect_clean(llm);
  }
}

// Beams, several choices, penalties, prompt scores and cancellations while blocks come and go everywhere.
TEST(LlmTiersAlone, EverythingAtOnce) {
  const TempDir dir;
  LlmOptions options = with_files(dir.path() / "cache");
  options.engine.kv_blocks = 30;
  options.engine.max_seqs = 6;
  options.engine.host_cache_bytes = 512 << 10;
  options.prefix_dir_bytes = 1 << 20;
  PlainLlm plain("llama-bf16-llama3");
  std::mt19937 random(5);
  std::vector<GenerationRequest> requests;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 24; ++i) {
    std::vector<int32_t> prompt = random_ids(random() % 3 * 20, plain.llm->limits().vocab, random() % 2);
    GenerationRequest request = greedy(
        joined(prompt, random_ids(1 + random() % 30, plain.llm->limits().vocab, random() % 4)), 1 + random() % 20);
    if (random() % 2 == 0) request.sampling.temperature = 1.0f;
    if (random() % 3 == 0) request.sampling.repetition_penalty = 1.3f;
    if (random() % 4 == 0) request.n = 2;
    if (random() % 6 == 0) request.prompt_logprobs = 1;
    request.sampling.seed = random();
    requests.push_back(request);
    expected.push_back(answer(*plain.llm, request)[0].token_ids);
  }
  for (int process = 0; process < 3; ++process) {
    const std::unique_ptr<Llm> llm = make(options);
    std::vector<std::thread> clients;
    for (uint32_t client = 0; client < 6; ++client)
      clients.emplace_back([&, client] {
        std::mt19937 draw(client);
        for (int round = 0; round < 20; ++round) {
          const size_t i = draw() % requests.size();
          GenerationRequest request = requests[i];
          request.client = std::to_string(client % 3);
          request.priority = static_cast<int32_t>(client % 2);
          const std::shared_ptr<Generation> generation = llm->submit(request);
          const bool leave = draw() % 7 == 0;
          if (leave) generation->cancel();
          const std::vector<Choice> choices = collect(*generation);
          if (!leave) {
            EXPECT_EQ(choices[0].token_ids, expected[i]);
          }
        }
      });
    for (std::thread& client : clients) client.join();
    expect_clean(*llm);
    EXPECT_EQ(llm->stats().blocks_damaged, 0u);
    if (process > 0) {
      EXPECT_GT(llm->stats().prefix_disk_hits, 0u);
    }
  }
}

TEST(LlmTiersAlone, RanksThatShareAModelHaveNone) {
  LlmOptions options = tiny_options();
  options.engine.tp = 2;
  const auto refused = [](const LlmOptions& wanted) {
    try {
      Llm::load(wanted);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  LlmOptions host = options, files = options, draft = options;
  host.engine.host_cache_bytes = 1 << 20;
  files.prefix_dir = "somewhere";
  draft.draft_model = "another";
  draft.engine.pp = 2;
  EXPECT_EQ(refused(host), "--prefix-ram cannot be combined with --tp 2: leave it out");
  EXPECT_EQ(refused(files), "--prefix-dir cannot be combined with --tp 2: leave it out");
  EXPECT_EQ(refused(draft), "--draft-model cannot be combined with --pp 2: leave it out");
}

}  // namespace
}  // namespace ingot::testing
