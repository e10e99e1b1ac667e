// What the Metal device promises beside the step contract: rows are independent of their neighbours, and a step moves
// few bytes in few dispatches.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "backend/backend.h"
#include "backend/cuda_device.h"
#include "backend/metal/traffic.h"
#include "backend/metal_mode.h"
#include "engine/internals.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"
#include "model/config.h"
#include "model/decoder.h"

namespace ingot::testing {
namespace {

// Sizes of steps for which other tests have the kernels compiled; the long form has larger ones.
bool small(const std::string& device) { return device == "metal" && !soak(); }

std::unique_ptr<Engine> load_on_metal(const std::string& name, const std::string& device = "metal") {
  const size_t colon = name.find(':');  // a model, or model:type of the KV cache
  EngineOptions options;
  options.model = fixture_model(name.substr(0, colon));
  if (colon != std::string::npos) options.kv_dtype = name.substr(colon + 1);
  options.device = device;
  options.max_model_len = 128;
  options.max_seqs = small(device) ? 3 : 8;
  options.kv_blocks = 8 * 8;
  options.max_step_tokens = small(device) ? 4 : 96;
  options.max_logits_rows = 64;
  return Engine::load(options);
}

class MetalNeighbours : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

// Decoding row by row, and prefilling in chunks: alone, and among others that do either.
TEST_P(MetalNeighbours, DoNotMatter) {
  const auto& [device, model] = GetParam();
  INGOT_SKIP_WITHOUT_CUDA(device);
  test::metal_in_strict_mode();
  const std::unique_ptr<Engine> engine = load_on_metal(model, device);
  const auto seqs = static_cast<uint32_t>(engine->limits().max_seqs);
  const uint32_t middle = seqs / 2;
  const std::vector<int32_t> ids = random_ids(14, engine->limits().vocab, 7);
  for (const int64_t chunk : {1, 7}) {
    const auto blocks = assign_blocks(engine->limits(), seqs, 128, 23);
    const Logits alone = run_sequences(*engine, {{ids, blocks[0], chunk}})[0];
    std::vector<Sequence> crowd;
    for (uint32_t s = 0; s < seqs; ++s)
      crowd.push_back(
          {random_ids(3 + s * 6, engine->limits().vocab, 100 + s), blocks[s], s % 3 == 0 ? 1 : 1 + s * 2, false});
    crowd[middle] = {ids, blocks[middle], chunk, true};
    const Logits crowded = run_sequences(*engine, crowd)[middle];
    ASSERT_EQ(alone.size(), crowded.size());
    for (size_t r = 0; r < alone.size(); ++r)
      ASSERT_EQ(std::memcmp(alone[r].data(), crowded[r].data(), alone[r].size() * sizeof(float)), 0)
          << "row " << r << " in chunks of " << chunk << " differs by " << max_difference({alone[r]}, {crowded[r]});
  }
}

const std::vector<std::string> kModels = {"llama-bf16-llama3", "llama-f16-yarn",      "mistral-bf16-window",
                                          "qwen3moe-f16",      "llama-f16-yarn:int8", "gemma3-bf16:int8"};

std::string neighbours_name(const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  for (char& c : name)
    if (c == '-' || c == ':') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, MetalNeighbours,
                         ::testing::Combine(::testing::Values("metal"),
                                            ::testing::ValuesIn(soak() ? kModels
                                                                       : unless_sanitized<std::string>(
                                                                             {"llama-bf16-llama3", "qwen3moe-gguf-bf16",
                                                                              "llama-bf16-llama3:int8"},
                                                                             {}))),
                         neighbours_name);
INSTANTIATE_TEST_SUITE_P(Cuda, MetalNeighbours,
                         ::testing::Combine(::testing::Values("cuda"), ::testing::ValuesIn(kModels)), neighbours_name);

// However a prompt is cut, and whoever comes with it, each of its rows has the same bits.
void expect_chunks_do_not_matter(Engine& engine, size_t length, const std::vector<int64_t>& chunks) {
  const std::vector<int32_t> ids = random_ids(length, engine.limits().vocab, 11);
  const auto blocks = assign_blocks(engine.limits(), 4, static_cast<int64_t>(length), 29);
  const bool crowded = engine.limits().max_seqs > 2;
  const Logits whole = run_sequences(engine, {{ids, blocks[0]}})[0];
  const auto expect_same = [&](const Logits& cut, int64_t chunk, const char* how) {
    ASSERT_EQ(whole.size(), cut.size());
    for (size_t r = 0; r < whole.size(); ++r)
      ASSERT_EQ(std::memcmp(whole[r].data(), cut[r].data(), whole[r].size() * sizeof(float)), 0)
          << "row " << r << " in chunks of " << chunk << " " << how << " differs by "
          << max_difference({whole[r]}, {cut[r]});
  };
  for (const int64_t chunk : chunks) {
    expect_same(run_sequences(engine, {{ids, blocks[1], chunk}})[0], chunk, "alone");
    std::vector<Sequence> crowd = {{ids, blocks[2], chunk}};
    crowd.push_back({random_ids(length, engine.limits().vocab, 31), blocks[0], 1, false});
    if (crowded) crowd.push_back({random_ids(length / 2, engine.limits().vocab, 37), blocks[1], chunk + 3, false});
    expect_same(run_sequences(engine, crowd)[0], chunk, "among others");
  }
}

TEST_P(MetalNeighbours, NorDoChunks) {
  const auto& [device, model] = GetParam();
  INGOT_SKIP_WITHOUT_CUDA(device);
  test::metal_in_strict_mode();
  const std::unique_ptr<Engine> engine = load_on_metal(model, device);
  if (small(device))
    expect_chunks_do_not_matter(*engine, 14, {1, 3});
  else
    expect_chunks_do_not_matter(*engine, 46, {1, 7, 23});
}

// Two steps in flight share memory that Metal does not watch: the fence alone keeps the second from writing what the
// first has not copied yet.
TEST(MetalOverlap, AStepWaitsForTheOutputsOfTheOneBefore) {
  test::metal_in_strict_mode();
  const std::unique_ptr<Engine> engine = load_on_metal("llama-bf16-llama3");
  const auto blocks = assign_blocks(engine->limits(), 2, 64, 3);
  const auto step_of = [&](size_t sequence) {
    const std::vector<int32_t> ids = random_ids(4, engine->limits().vocab, 11);
    StepBuilder builder(engine->limits().block_size);
    builder.add(ids, 0, blocks[sequence]);
    builder.sample(0, {.temperature = 0});
    return builder.finish();
  };
  for (int round = 0; round < 3; ++round) {
    const StepTicket first = engine->submit(step_of(0)), second = engine->submit(step_of(1));
    const int32_t token = engine->wait(first).rows[0].token;
    EXPECT_EQ(engine->wait(second).rows[0].token, token);
  }
}

// A folder for dummy weights: a Llama of two layers with these sizes.
std::string write_llama_config(const std::string& name, const std::string& sizes) {
  std::string folder = ::testing::TempDir() + "/" + name;
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
    )" << sizes << "}";
  return folder;
}

// Of the size at which a library would choose among its ways by the number of rows.
TEST(MetalPrefill, ChunksDoNotMatterInALargeModelOnCuda) {
  INGOT_SKIP_WITHOUT_CUDA(std::string("cuda"));
  const std::string folder = write_llama_config(
      "metal_prefill_model", R"("hidden_size": 5120, "intermediate_size": 16384, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 4096,
        "torch_dtype": "bfloat16")");
  for (const char* dtype : {"bf16", "f16", "q4_k"}) {
    EngineOptions options;
    options.model = folder;
    options.load_format = "dummy";
    options.dtype = dtype;
    options.device = "cuda";
    options.max_model_len = 1024;
    options.max_seqs = 8;
    options.kv_blocks = 8 * 64;
    options.max_step_tokens = 1024;
    options.max_logits_rows = 640;
    const std::unique_ptr<Engine> engine = Engine::load(options);
    expect_chunks_do_not_matter(*engine, 600, {1, 5, 16, 32, 64, 129, 257, 500});
  }
}

// A profile tells the products of a layer apart, and each dispatch is a submission of its own then.
void expect_profile(const std::string& model, const std::vector<std::string>& products,
                    const std::vector<std::string>& kernels = {}) {
  if (kSanitized) GTEST_SKIP() << "nothing here for a sanitizer to see";
  test::metal_in_strict_mode();
  ::setenv("VLLM_METAL_PROFILE", "1", 1);
  std::unique_ptr<Engine> engine = load_on_metal(model);
  ::unsetenv("VLLM_METAL_PROFILE");
  const auto blocks = assign_blocks(engine->limits(), 1, 64, 3);
  const int32_t token = 5;
  StepBuilder builder(engine->limits().block_size);
  builder.add({&token, 1}, 0, blocks[0]);
  builder.sample(0, {.temperature = 0});
  const StepStats stats = engine->run(builder.finish()).stats;
  EXPECT_EQ(stats.submissions, stats.dispatches + 2);  // and one each for inputs and outputs
  ::testing::internal::CaptureStderr();
  engine.reset();
  const std::string table = ::testing::internal::GetCapturedStderr();
  for (const std::string& product : products)
    EXPECT_NE(table.find("\n" + product + " linear"), std::string::npos) << product << " in\n" << table;
  for (const std::string& kernel : kernels)
    EXPECT_NE(table.find("\n" + kernel), std::string::npos) << kernel << " in\n" << table;
}
TEST(MetalProfile, NamesEachProduct) {
  expect_profile("llama-bf16-llama3", {"qkv", "attn_out", "mlp gate_up", "mlp down", "head"});
}
TEST(MetalProfile, NamesThoseOfExperts) {
  expect_profile("qwen3moe-bf16", {"qkv", "attn_out", "experts gate_up", "experts down", "head"},
                 {"router linear_unrounded"});  // it reads rows that were not rounded
}

#ifndef __APPLE__
// Large enough that words of bookkeeping do not count, small enough to be counted byte by byte.
std::string middling_model() {
  return write_llama_config("metal_traffic_model",
                            R"("hidden_size": 256, "intermediate_size": 640, "max_position_embeddings": 512,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2000,
        "torch_dtype": "float16")");
}

// One weight read serves the whole batch, the cache is read once, and a layer is at most eight operations.
class MetalTrafficOf : public ::testing::TestWithParam<std::string> {};  // a type of the KV cache

TEST_P(MetalTrafficOf, DecodeReadsWeightsAndCacheOnce) {
  if (!count_metal_traffic()) GTEST_SKIP() << "kernels are compiled with a sanitizer";
  EngineOptions options;
  options.model = middling_model();
  options.load_format = "dummy";
  options.device = "metal";
  options.kv_dtype = GetParam();
  options.max_model_len = 128;
  const std::vector<int32_t> batches = soak() ? std::vector<int32_t>{1, 8, 16} : std::vector<int32_t>{1, 2};
  options.max_seqs = batches.back();
  options.max_step_tokens = soak() ? 32 : 2;
  options.kv_blocks = batches.back() * 8;
  const std::unique_ptr<Engine> engine = Engine::load(options);
  const auto blocks = assign_blocks(engine->limits(), static_cast<size_t>(batches.back()), 128, 3);
  const std::vector<int32_t> ids = random_ids(31, engine->limits().vocab, 5);
  StepBuilder builder(engine->limits().block_size);
  for (const auto& own : blocks) run_sequences(*engine, {{ids, own, options.max_step_tokens, false}});
  uint64_t one = 0;
  for (const int32_t batch : batches) {
    builder.clear();
    for (int32_t s = 0; s < batch; ++s) {
      builder.add({&ids[0], 1}, 31, blocks[s]);
      builder.sample(s, {.temperature = 0});
    }
    take_metal_traffic();
    const StepStats stats = engine->run(builder.finish()).stats;
    const MetalTraffic traffic = take_metal_traffic();
    if (batch == 1) one = traffic.matrices;
    ASSERT_GT(traffic.matrices, 0u);
    EXPECT_LE(static_cast<double>(traffic.kv), 1.05 * static_cast<double>(stats.kv_bytes)) << "batch " << batch;
    EXPECT_GE(traffic.kv, stats.kv_bytes) << "batch " << batch;
    EXPECT_LE(static_cast<double>(traffic.matrices), 1.05 * static_cast<double>(one)) << "batch " << batch;
    EXPECT_LE(static_cast<double>(traffic.weights), 1.05 * static_cast<double>(stats.weight_bytes))
        << "batch " << batch;
    EXPECT_GE(traffic.weights, stats.weight_bytes) << "batch " << batch;
    const uint64_t least = DecoderScratch::of(EngineInternals::config(*engine),
                                              whole_model(EngineInternals::config(*engine)), batch, batch, DType::f16)
                               .least_loads;
    EXPECT_LE(static_cast<double>(traffic.unique_activations), 1.05 * static_cast<double>(least)) << "batch " << batch;
    EXPECT_GE(traffic.unique_activations, least) << "batch " << batch;
    // Embedding, rotation, last norm, head and sampling stand beside the layers.
    EXPECT_LE(stats.dispatches, 8 + 8 * engine->model().layers) << "batch " << batch;
  }
}

INSTANTIATE_TEST_SUITE_P(KvTypes, MetalTrafficOf, ::testing::ValuesIn(with_soak<std::string>({"int8"}, {"f16"})),
                         [](const auto& info) { return info.param; });

TEST(MetalTraffic, AMixedLayerIsAtMostElevenDispatches) {
  if (kSanitized) GTEST_SKIP() << "nothing here for a sanitizer to see";
  test::metal_in_strict_mode();
  const std::unique_ptr<Engine> engine = load_on_metal("llama-bf16-llama3");
  const auto blocks = assign_blocks(engine->limits(), 2, 64, 3);
  const std::vector<int32_t> ids = random_ids(3, engine->limits().vocab, 5);
  StepBuilder builder(engine->limits().block_size);
  builder.add({&ids[0], 1}, 0, blocks[0]);
  builder.add(ids, 0, blocks[1]);
  builder.sample(0, {.temperature = 0});
  builder.sample(3, {.temperature = 0});
  EXPECT_LE(engine->run(builder.finish()).stats.dispatches, 9 + 11 * engine->model().layers);
}
#endif

}  // namespace
}  // namespace ingot::testing
