// The memory plan against what a process really holds: real configurations with made-up weights, in a process of its
// own, with every block of the cache and the largest step in use.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "core/error.h"
#include "core/memory.h"
#include "engine/follower.h"
#include "engine/loader.h"
#include "engine/memory_plan.h"
#include "engine/process_group.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

struct Case {
  const char* config;
  const char* dtype;
  int32_t step_tokens;
  bool large;  // gigabytes and minutes: only when INGOT_LARGE_CONFIGS is set
  const char* quantize = "";
};

struct Bytes {
  uint64_t planned, peak;
};

constexpr int32_t kSeqs = 2;

EngineOptions options_of(const Case& c) {
  EngineOptions options;
  options.model = fixture_config(c.config);
  options.load_format = "dummy";
  options.dtype = c.dtype;
  options.quantize = c.quantize;
  options.device = "cpu";
  options.max_seqs = kSeqs;
  options.max_step_tokens = c.step_tokens;
  options.max_model_len = c.step_tokens;
  return options;
}

// Fills every sequence to its end, in the largest steps there are, asking for the logits or the logprobs of each row.
Bytes use_it_all(const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = Engine::load(options);
  const EngineLimits& limits = engine->limits();
  const std::vector<std::vector<int32_t>> blocks = assign_blocks(limits, kSeqs, limits.max_model_len, 7);
  const std::vector<int32_t> ids = random_ids(static_cast<size_t>(limits.max_model_len), limits.vocab, 11);
  StepBuilder builder(limits.block_size);
  for (int32_t s = 0; s < kSeqs; ++s) {
    builder.clear();
    builder.add(ids, 0, blocks[s]);
    for (int32_t row = 0; row < std::min(limits.max_sample_rows, builder.rows()); ++row)
      if (row < limits.max_logits_rows)
        builder.sample(row, {}, -1, {.kind = RowOutput::Kind::full_logits});
      else
        builder.sample(row, {}, -1, {.kind = RowOutput::Kind::score, .top = limits.max_top, .target = 1});
    engine->run(builder.finish());
  }
  return {engine->memory().total_bytes(), peak_rss_bytes()};
}

// In children, so that the peaks are theirs alone; all of them at the same time.
std::vector<Bytes> measure(const std::vector<std::function<Bytes()>>& uses) {
  std::vector<std::pair<pid_t, int>> children;
  for (const std::function<Bytes()>& use : uses) {
    int ends[2];
    if (pipe(ends) != 0) throw_error(ErrorKind::io, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
      Bytes bytes{};
      try {
        bytes = use();
      } catch (const std::exception& error) {
        fprintf(stderr, "%s\n", error.what());
      }
      const bool written = write(ends[1], &bytes, sizeof bytes) == sizeof bytes;
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  std::vector<Bytes> all;
  for (const auto& [child, end] : children) {
    Bytes bytes{};
    const ssize_t got = read(end, &bytes, sizeof bytes);
    close(end);
    waitpid(child, nullptr, 0);
    all.push_back(got == sizeof bytes ? bytes : Bytes{});
  }
  return all;
}

class MemoryPeak : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryPeak, IsWhatThePlanSaid) {
  if (GetParam().large && getenv("INGOT_LARGE_CONFIGS") == nullptr)
    GTEST_SKIP() << "set INGOT_LARGE_CONFIGS=1 to run it: needs about 20 GiB of free memory and some minutes";
  const Bytes bytes = measure({[] { return use_it_all(options_of(GetParam())); }})[0];
  ASSERT_GT(bytes.planned, 0u);
  printf("planned %.0f MB, peak %.0f MB\n", bytes.planned / 1e6, bytes.peak / 1e6);
  const double allowed = 0.05 * static_cast<double>(bytes.planned) + 64e6;
  EXPECT_NEAR(static_cast<double>(bytes.peak), static_cast<double>(bytes.planned), allowed);
}

// Each stage holds what its own plan said: its layers, and its layers' cache.
TEST(MemoryPeakOfStages, IsWhatTheirPlansSaid) {
  EngineOptions options = options_of({.config = "Qwen2-0.5B", .dtype = "q8_0", .step_tokens = 48});
  const uint64_t whole = inspect_model(options).plan.weight_bytes;
  options.pp = 2;
  const ProcessGroup::Lines lines;
  const auto lead = [&] {
    EngineOptions own = options;
    own.group = std::make_shared<ProcessGroup>(lines, 0);
    return use_it_all(own);
  };
  const auto follows = [&]() -> Bytes {
    EngineOptions own = options;
    own.group = std::make_shared<ProcessGroup>(lines, 1);
    follow(own);
    const uint64_t peak = peak_rss_bytes();
    return {inspect_model(options, 1).plan.total_bytes(), peak};
  };
  uint64_t planned = 0;
  for (const Bytes& bytes : measure({lead, follows})) {
    ASSERT_GT(bytes.planned, 0u);
    printf("planned %.0f MB, peak %.0f MB\n", bytes.planned / 1e6, bytes.peak / 1e6);
    const double allowed = 0.03 * static_cast<double>(bytes.planned) + 64e6;
    EXPECT_NEAR(static_cast<double>(bytes.peak), static_cast<double>(bytes.planned), allowed);
    planned += bytes.planned;
  }
  EXPECT_GT(planned, whole);
}

INSTANTIATE_TEST_SUITE_P(Configs, MemoryPeak,
                         ::testing::ValuesIn(with_soak<Case>({Case{"Qwen2-0.5B", "bf16", 48, false, "int4"}},
                                                             {Case{"Qwen2-0.5B", "bf16", 128, false},
                                                              Case{"TinyLlama-1.1B", "q4_k", 128, false},
                                                              Case{"Devstral-Small-2507", "q4_k", 16, true},
                                                              Case{"Devstral-Small-2507", "bf16", 16, true, "int4"},
                                                              Case{"Qwen3-30B-A3B", "q4_k", 16, true}})),
                         [](const auto& info) {
                           std::string name = std::string(info.param.config) + info.param.quantize;
                           std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace ingot::testing
