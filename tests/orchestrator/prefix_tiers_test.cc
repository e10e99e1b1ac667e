#include "orchestrator/prefix_tiers.h"

#include <gtest/gtest.h>

#include "engine/sequences.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

// What a step may copy follows from what it takes, so that those who read along keep their pace.
TEST(PrefixTiers, CopiesAreAShareOfAStep) {
  EngineOptions options;
  options.model = fixture_model("llama-bf16-llama3");
  options.threads = 1;
  options.kv_dtype = "f32";
  options.block_size = 64;
  options.kv_blocks = 8;
  options.max_model_len = 128;
  options.host_cache_bytes = 1 << 20;
  const std::unique_ptr<Engine> engine = Engine::load(options);
  const auto block_bytes = static_cast<int64_t>(engine->host_block(0).size());
  PrefixTiers tiers(*engine, BlockHasher(), nullptr, [](const std::string& line) { ADD_FAILURE() << line; });
  const auto allowed = [&](bool streams, double step_us) {
    tiers.begin_step(streams, step_us);
    int32_t count = 0;
    for (; tiers.may_load(); ++count) tiers.load(count, count);
    Step step;
    tiers.give_moves(step);
    EXPECT_EQ(std::ssize(step.block_loads), count);
    return count;
  };
  ASSERT_FALSE(engine->limits().moves_beside) << "on the CPU copies come before the rows";
  EXPECT_EQ(allowed(true, 1e-3), 1) << "it goes on, however quick the steps";
  EXPECT_EQ(allowed(true, 1e9), (2 << 20) / block_bytes) << "and never holds anybody up for long";
  EXPECT_EQ(allowed(true, 0), (2 << 20) / block_bytes) << "nothing is known yet";
  EXPECT_EQ(allowed(false, 0), (64 << 20) / block_bytes);
  // The price of a copy is what steps measure: here ten microseconds, or a thousand.
  const auto learn = [&](double us) {
    for (int i = 0; i < 200; ++i) tiers.learn_price(4, 4 * us);
  };
  learn(10);
  EXPECT_NEAR(allowed(true, 1000), 10, 2) << "a tenth of the step";
  learn(1000);
  EXPECT_NEAR(allowed(true, 100e3), 10, 2);
  tiers.learn_price(0, 50);
  tiers.learn_price(4, 0);
  EXPECT_NEAR(allowed(true, 100e3), 10, 2) << "a step without copies, or a device that does not measure them";
}

TEST(PrefixTiers, AStepTellsWhatItsCopiesTook) {
  EngineOptions options;
  options.model = fixture_model("llama-bf16-llama3");
  options.threads = 2;
  options.kv_blocks = 8;
  options.max_model_len = 64;
  options.host_cache_bytes = 1 << 20;
  const std::unique_ptr<Engine> engine = Engine::load(options);
  StepBuilder moves(engine->limits().block_size), rows(engine->limits().block_size);
  moves.step().block_saves.push_back({0, 0});
  const StepStats moved = engine->wait(engine->submit(moves.finish())).stats;
  EXPECT_GT(moved.move_us, 0);
  EXPECT_LE(moved.move_us, moved.run_us);
  rows.sample(rows.add(std::vector<int32_t>{1}, 0, std::vector<int32_t>{0}), {.temperature = 0});
  EXPECT_EQ(engine->wait(engine->submit(rows.finish())).stats.move_us, 0);
}

}  // namespace
}  // namespace ingot::testing
