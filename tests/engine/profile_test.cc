#include "backend/profile.h"

#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "backend/cpu/peak.h"
#include "engine/internals.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"
#include "model/config.h"

namespace ingot::testing {
namespace {

// A prompt of four tokens, then one decode step. The token that the second one gives.
int32_t run_two_steps(Engine& engine) {
  const auto blocks = assign_blocks(engine.limits(), 1, 64, 3);
  const std::vector<int32_t> ids = {5, 6, 7, 8};
  StepBuilder builder(engine.limits().block_size);
  builder.add(ids, 0, blocks[0]);
  engine.run(builder.finish());
  builder.clear();
  builder.add({&ids[0], 1}, 4, blocks[0]);
  builder.sample(0, {.temperature = 0});
  return engine.run(builder.finish()).rows[0].token;
}

std::unique_ptr<Engine> load_on_cpu(bool profile) {
  EngineOptions options;
  options.model = fixture_model("llama-bf16-llama3");
  options.device = "cpu";
  options.threads = 2;
  options.profile = profile;
  return Engine::load(options);
}

TEST(CpuProfile, CountsWhatEachOperationReadsAndMultiplies) {
  const std::unique_ptr<Engine> engine = load_on_cpu(true);
  const ModelConfig& config = EngineInternals::config(*engine);
  Backend& device = EngineInternals::device(*engine);
  device.take_profile();
  run_two_steps(*engine);
  const Profile profile = device.take_profile();
  EXPECT_EQ(profile.steps(), 2u);
  const auto& lines = profile.lines();
  const auto layers = static_cast<uint64_t>(config.layers);
  for (const char* product :
       {"qkv linear", "attn_out linear", "mlp gate_up linear", "mlp down linear", "head linear"}) {
    ASSERT_TRUE(lines.contains(product)) << product;
    EXPECT_GT(lines.at(product).seconds, 0) << product;
  }
  EXPECT_EQ(lines.at("qkv linear").dispatches, 2 * layers);
  const double hidden = static_cast<double>(config.hidden);
  // The prompt samples nothing, so that nobody needs its rows behind the last layer's attention; the second row is
  // sampled.
  const Profile::Line& down = lines.at("mlp down linear");
  EXPECT_EQ(down.dispatches, 2 * layers - 1);
  const double rows = 4 * static_cast<double>(layers - 1) + static_cast<double>(layers);
  EXPECT_EQ(down.operations, 2 * rows * hidden * static_cast<double>(config.ffn));
  EXPECT_GE(down.bytes, down.dispatches * static_cast<uint64_t>(config.hidden * config.ffn) * 2);  // bf16
  EXPECT_EQ(lines.at("head linear").operations, 2.0 * hidden * static_cast<double>(config.vocab));
  // Rows see 1 + 2 + 3 + 4 keys, and 5.
  const double width = static_cast<double>(config.heads * config.head_size);
  EXPECT_EQ(lines.at("prefill attention").operations, 4 * 10 * width * static_cast<double>(layers));
  EXPECT_EQ(lines.at("decode attention").operations, 4 * 5 * width * static_cast<double>(layers));
  EXPECT_GT(lines.at("decode attention").bytes, 0u);
  EXPECT_TRUE(device.take_profile().lines().empty());
}

TEST(CpuProfile, ChangesNoTokenAndCostsNothingWhenNotAskedFor) {
  const std::unique_ptr<Engine> with = load_on_cpu(true), without = load_on_cpu(false);
  EXPECT_EQ(run_two_steps(*with), run_two_steps(*without));
  EXPECT_TRUE(EngineInternals::device(*without).take_profile().lines().empty());
}

TEST(CpuProfile, TableHoldsTimesAgainstRoofs) {
  Profile profile;
  EXPECT_EQ(profile.table(), "");
  profile.add(
      "qkv linear",
      {.dispatches = 2, .seconds = 0.25, .bytes = 1000000000, .operations = 5e9, .arithmetic = Arithmetic::int8});
  profile.add("norm", {.dispatches = 1, .seconds = 0.75});
  profile.end_step();
  const std::string table = profile.table({.read_gb_s = 8, .int8_gop_s = 40, .f32_gop_s = 10});
  EXPECT_LT(table.find("norm"), table.find("qkv linear")) << "the longest first\n" << table;
  EXPECT_NE(table.find("  25.0%     1000.00       4.0   50%      20.0   50%\n"), std::string::npos) << table;
  EXPECT_NE(table.find("1 steps, 1000.000 ms"), std::string::npos) << table;
}

TEST(CpuProfile, PeaksAreMeasuredOnEveryPathThatRunsHere) {
  for (const cpu::Isa isa : cpu::available_isas()) {
    const Roofs roofs = cpu::measure_peaks(isa, 1);
    EXPECT_GT(roofs.f32_gop_s, 0) << cpu::isa_name(isa);
    EXPECT_EQ(roofs.int8_gop_s > 0, isa != cpu::Isa::portable) << cpu::isa_name(isa);
  }
}

}  // namespace
}  // namespace ingot::testing
