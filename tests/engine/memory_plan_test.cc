#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cpu/device.h"
#include "core/error.h"
#include "engine/loader.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

using ::testing::HasSubstr;

EngineOptions tiny_options() {
  EngineOptions options;
  options.model = fixture_model("llama-bf16-llama3");
  options.device = "cpu";
  options.threads = 1;
  return options;
}

std::string load_error(const EngineOptions& options) {
  try {
    inspect_model(options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(MemoryPlan, AddsUpAndTakesWhatItIsGiven) {
  EngineOptions options = tiny_options();
  options.max_model_len = 64;
  options.kv_blocks = 10;
  options.max_step_tokens = 33;
  options.max_seqs = 3;
  const MemoryPlan plan = inspect_model(options).plan;
  EXPECT_EQ(plan.limits.max_model_len, 64);
  EXPECT_EQ(plan.limits.num_blocks, 10);
  EXPECT_EQ(plan.limits.max_step_tokens, 33);
  EXPECT_EQ(plan.limits.max_seqs, 3);
  EXPECT_EQ(plan.kv_bytes, plan.kv.total_bytes());
  EXPECT_EQ(plan.total_bytes(), plan.weight_bytes + plan.kv_bytes + plan.scratch_bytes + plan.work_bytes +
                                    plan.sampler_bytes + plan.io_bytes);
  EXPECT_GT(plan.weight_bytes, 0u);
  EXPECT_EQ(plan.scratch_bytes, plan.scratch.bytes);
  EXPECT_GT(plan.work_bytes, 0u);
}

TEST(MemoryPlan, HostBlocksAreAsManyAsFit) {
  EngineOptions options = tiny_options();
  options.kv_blocks = 10;
  EXPECT_EQ(inspect_model(options).plan.limits.host_blocks, 0);
  const uint64_t block = inspect_model(options).plan.kv_bytes / 10;
  options.host_cache_bytes = static_cast<int64_t>(7 * block + block / 2);
  const MemoryPlan plan = inspect_model(options).plan;
  EXPECT_EQ(plan.limits.host_blocks, 7);
  EXPECT_EQ(plan.host_cache_bytes, 7 * block);
  EXPECT_THAT(plan.describe(), HasSubstr("host blocks"));
  options.host_cache_bytes = -1;  // as many as one may want
  EXPECT_GT(inspect_model(options).plan.limits.host_blocks, 1000);
  options.host_cache_bytes = static_cast<int64_t>(block - 1);
  EXPECT_THAT(load_error(options), HasSubstr("--prefix-ram"));
  options.host_cache_bytes = int64_t{1} << 50;
  EXPECT_THAT(load_error(options), HasSubstr("does not fit"));
}

// Rows are gathered for their experts before they are multiplied: three vectors of 64 floats a row in this model.
TEST(MemoryPlan, ExpertsNeedRoomForTheirRows) {
  EngineOptions options = tiny_options();
  options.model = fixture_model("qwen3moe-bf16");
  options.max_step_tokens = 4096;
  const int64_t pairs = int64_t{4096} * 3;
  const uint64_t multiplied = make_cpu_backend({.threads = 1})->work_bytes(pairs, 64);
  EXPECT_GE(inspect_model(options).plan.work_bytes, multiplied + static_cast<uint64_t>(pairs) * 64 * sizeof(float));
}

TEST(MemoryPlan, WhatDoesNotFitIsRefusedWithTheNumbers) {
  EngineOptions options = tiny_options();
  options.kv_blocks = int64_t{1} << 40;
  EXPECT_THAT(load_error(options), HasSubstr("does not fit"));
  EXPECT_THAT(load_error(options), HasSubstr("available"));
  options.kv_blocks = 2;
  options.max_model_len = 64;
  EXPECT_THAT(load_error(options), HasSubstr("2 KV blocks"));
}

TEST(MemoryPlan, SmallCachesShortenSequencesNobodyAskedFor) {
  EngineOptions options = tiny_options();
  options.kv_blocks = 3;
  EXPECT_EQ(inspect_model(options).plan.limits.max_model_len, 48);
}

TEST(MemoryPlan, UnaskedTheCacheLeavesHalfOfTheMemory) {
  EngineOptions options = tiny_options();
  options.max_seqs = 4096;
  const MemoryPlan plan = inspect_model(options).plan;
  ASSERT_GT(plan.available_bytes, 0u);
  EXPECT_LT(plan.limits.num_blocks * options.block_size, plan.limits.max_model_len * 4096) << "the cap is reached";
  EXPECT_LE(plan.kv_bytes, plan.available_bytes / 2);
}

// Eight bits and a scale a row, instead of sixteen bits: more blocks in the same memory.
TEST(MemoryPlan, AnInt8CacheTakesAboutHalf) {
  EngineOptions options = tiny_options();
  options.kv_blocks = 10;
  options.max_model_len = 64;
  const MemoryPlan f16 = inspect_model(options).plan;
  options.kv_dtype = "int8";
  const MemoryPlan int8 = inspect_model(options).plan;
  const int64_t rows = 2 * f16.kv.layers * 10 * f16.kv.kv_heads * 16;
  EXPECT_EQ(f16.kv_bytes, static_cast<uint64_t>(rows * f16.kv.head_size * 2));
  EXPECT_EQ(int8.kv_bytes, static_cast<uint64_t>(rows * (f16.kv.head_size + 4)));

  // All but 400 MB taken by weights: as many blocks as the rest can hold.
  const std::unique_ptr<Backend> device = make_cpu_backend({.threads = 1});
  const ModelConfig config = inspect_model(options).config;
  options.kv_blocks = 0;
  options.max_model_len = 0;
  options.max_seqs = 4096;
  const auto blocks = [&](const char* kv_dtype) {
    options.kv_dtype = kv_dtype;
    const uint64_t weights = device->info().memory_bytes - (400ull << 20);
    return static_cast<double>(
        plan_memory(config, whole_model(config), options, {}, *device, weights, device->info().memory_bytes)
            .limits.num_blocks);
  };
  const double more = static_cast<double>(f16.kv.row_bytes()) / static_cast<double>(int8.kv.row_bytes());
  EXPECT_NEAR(blocks("int8") / blocks("f16"), more, 0.01);
}

// A model length nobody asked for gives way to the memory there is.
TEST(MemoryPlan, TheModelLengthFollowsTheBlocksThatFit) {
  EngineOptions options = tiny_options();
  options.max_seqs = 2;
  const ModelConfig config = inspect_model(options).config;
  const std::unique_ptr<Backend> device = make_cpu_backend({.threads = 1});
  const auto plan = [&](uint64_t weights) {
    return plan_memory(config, whole_model(config), options, {}, *device, weights, device->info().memory_bytes);
  };
  const MemoryPlan whole = plan(0);
  const uint64_t block = whole.kv_bytes / static_cast<uint64_t>(whole.kv.num_blocks);
  const uint64_t fixed = whole.total_bytes() - whole.kv_bytes + (256ull << 20);  // what is left to the system
  const MemoryPlan tight = plan(device->info().memory_bytes - fixed - 3 * block - block / 2);
  EXPECT_EQ(tight.limits.num_blocks, 3);
  EXPECT_EQ(tight.limits.max_model_len, 3 * options.block_size);
}

TEST(MemoryPlan, ScratchPoolBoundsTheStep) {
  Variable pool("VLLM_METAL_SCRATCH_POOL_MB", "1");
  const MemoryPlan plan = inspect_model(tiny_options()).plan;
  EXPECT_LT(plan.limits.max_step_tokens, 2048);
  EXPECT_LE(plan.scratch.bytes, size_t{1} << 20);
  EngineOptions asked = tiny_options();
  asked.max_step_tokens = 2048;
  EXPECT_THAT(load_error(asked), HasSubstr("VLLM_METAL_SCRATCH_POOL_MB=1"));
  Variable batch("VLLM_METAL_MAX_BATCH_SIZE", "2000");
  EXPECT_THAT(load_error(tiny_options()), HasSubstr("2000 tokens"));
}

TEST(MemoryPlan, BadOptionsAreNamed) {
  EngineOptions options = tiny_options();
  options.max_model_len = 1 << 30;
  EXPECT_THAT(load_error(options), HasSubstr("--max-model-len"));
  options = tiny_options();
  options.load_format = "sharded";
  EXPECT_THAT(load_error(options), HasSubstr("--load-format sharded: must be auto or dummy"));
  options = tiny_options();
  options.kv_dtype = "q4_0";
  EXPECT_THAT(load_error(options), HasSubstr("--kv-dtype q4_0: must be f16, bf16, int8 or f32"));
  options = tiny_options();
  options.block_size = 0;
  EXPECT_THAT(load_error(options), HasSubstr("block size 0"));
}

}  // namespace
}  // namespace ingot::testing
