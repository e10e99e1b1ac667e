// The memory plan against what a process really holds: real configurations with made-up weights, in a process of its
// own, with every block of the cache and the largest step in use.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "core/memory.h"
#include "engine/memory_plan.h"
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

// Fills every sequence to its end, in the largest steps there are, asking for the logprobs of each row.
Bytes use_it_all(const Case& c) {
  EngineOptions options;
  options.model = fixture_config(c.config);
  options.load_format = "dummy";
  options.dtype = c.dtype;
  options.quantize = c.quantize;
  options.device = "cpu";
  options.max_seqs = kSeqs;
  options.max_step_tokens = c.step_tokens;
  options.max_model_len = c.step_tokens;
  const std::unique_ptr<Engine> engine = Engine::load(options);
  const EngineLimits& limits = engine->limits();
  const std::vector<std::vector<int32_t>> blocks = assign_blocks(limits, kSeqs, limits.max_model_len, 7);
  const std::vector<int32_t> ids = random_ids(static_cast<size_t>(limits.max_model_len), limits.vocab, 11);
  StepBuilder builder(limits.block_size);
  for (int32_t s = 0; s < kSeqs; ++s) {
    builder.clear();
    builder.add(ids, 0, blocks[s]);
    for (int32_t row = 0; row < std::min(limits.max_sample_rows, builder.rows()); ++row)
      builder.sample(row, {}, -1, {.kind = RowOutput::Kind::score, .top = limits.max_top, .target = 1});
    engine->run(builder.finish());
  }
  return {engine->memory().total_bytes(), peak_rss_bytes()};
}

// In a child, so that the peak is this case's alone.
Bytes measure(const Case& c) {
  int ends[2];
  if (pipe(ends) != 0) throw_error(ErrorKind::io, "no pipe");
  const pid_t child = fork();
  if (child == 0) {
    Bytes bytes{};
    try {
      bytes = use_it_all(c);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s: %s\n", c.config, error.what());
    }
    const bool written = write(ends[1], &bytes, sizeof bytes) == sizeof bytes;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Bytes bytes{};
  const ssize_t got = read(ends[0], &bytes, sizeof bytes);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return got == sizeof bytes ? bytes : Bytes{};
}

class MemoryPeak : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryPeak, IsWhatThePlanSaid) {
  if (GetParam().large && getenv("INGOT_LARGE_CONFIGS") == nullptr)
    GTEST_SKIP() << "set INGOT_LARGE_CONFIGS=1 to run it: needs about 20 GiB of free memory and some minutes";
  const Bytes bytes = measure(GetParam());
  ASSERT_GT(bytes.planned, 0u);
  printf("planned %.0f MB, peak %.0f MB\n", bytes.planned / 1e6, bytes.peak / 1e6);
  const double allowed = 0.05 * static_cast<double>(bytes.planned) + 64e6;
  EXPECT_NEAR(static_cast<double>(bytes.peak), static_cast<double>(bytes.planned), allowed);
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
