// What saving blocks to host memory and loading them costs a decode step: the step alone, with moves of blocks that it
// does not touch, and with moves of blocks that it reads, which come before its rows.
//   moves_bench MODEL [--device cuda] [--load-format dummy] [--batch 4] [--context 1024] [--moves 1,4,16,64]
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "ingot/engine.h"
#include "ingot/step_builder.h"

namespace ingot {
namespace {

constexpr int kSteps = 30;

using Clock = std::chrono::steady_clock;

struct Times {
  double step_us = 0, run_us = 0, submit_us = 0;  // from one answer to the next; on the device; of the host
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Steps as they follow each other: one is in flight, always.
Times time_steps(Engine& engine, const Step& step) {
  std::vector<double> steps, runs, submits;
  StepTicket ticket = engine.submit(step);
  Clock::time_point last = Clock::now();
  for (int i = 0; i < kSteps; ++i) {
    const Clock::time_point before = Clock::now();
    const StepTicket next = engine.submit(step);
    submits.push_back(us_since(before));
    runs.push_back(engine.wait(ticket).stats.run_us);
    steps.push_back(us_since(last));
    last = Clock::now();
    ticket = next;
  }
  engine.wait(ticket);
  return {median(steps), median(runs), median(submits)};
}

struct Args {
  EngineOptions engine;
  int32_t batch = 4;
  int64_t context = 1024;
  std::vector<int32_t> moves = {1, 4, 16, 64};
};

void run(Args args) {
  const int64_t block_size = args.engine.block_size, each = args.context / block_size + 1;
  const int32_t most = *std::ranges::max_element(args.moves);
  const auto used = static_cast<int32_t>(args.batch * each);
  args.engine.max_seqs = args.batch;
  args.engine.max_model_len = each * block_size;
  args.engine.kv_blocks = used + most;
  args.engine.host_cache_bytes = int64_t{1} << 30;
  const std::unique_ptr<Engine> engine = Engine::load(args.engine);
  if (engine->limits().host_blocks < 2 * most)
    throw_error(ErrorKind::bad_call, "{} host blocks are too few for {} saves and loads", engine->limits().host_blocks,
                most);
  const size_t block_bytes = engine->host_block(0).size();
  fmt::print("{}\n{} sequences of {} tokens, blocks of {:.2f} MB\n\n", engine->device_description(), args.batch,
             args.context, static_cast<double>(block_bytes) / 1e6);
  fmt::print("{:>24} {:>9} {:>9} {:>10} {:>9}\n", "", "step us", "run us", "submit us", "GB/s");
  StepBuilder builder(block_size);
  const int32_t token = 1;
  std::vector<int32_t> blocks(static_cast<size_t>(each));
  const auto build = [&](bool rows, int32_t moves, bool needed) {
    builder.clear();
    for (int32_t s = 0; rows && s < args.batch; ++s) {
      std::iota(blocks.begin(), blocks.end(), s * static_cast<int32_t>(each));
      builder.sample(builder.add({&token, 1}, args.context - 1, blocks), {.temperature = 0});
    }
    for (int32_t i = 0; i < moves; ++i) {
      const int32_t block = needed ? i : used + i;
      builder.step().block_saves.push_back({block, i});
      builder.step().block_loads.push_back({most + i, block});
    }
    return builder.finish();
  };
  const auto print = [&](const std::string& name, const Times& times, int32_t moves) {
    fmt::print("{:>24} {:>9.0f} {:>9.0f} {:>10.0f} {:>9.2f}\n", name, times.step_us, times.run_us, times.submit_us,
               2e-3 * moves * static_cast<double>(block_bytes) / times.step_us);
    std::fflush(stdout);
  };
  time_steps(*engine, build(true, 0, false));
  print("rows alone", time_steps(*engine, build(true, 0, false)), 0);
  for (const int32_t moves : args.moves) {
    print(fmt::format("{} moves alone", moves), time_steps(*engine, build(false, moves, false)), moves);
    print(fmt::format("rows, {} beside", moves), time_steps(*engine, build(true, moves, false)), moves);
    if (moves <= used)
      print(fmt::format("rows, {} before", moves), time_steps(*engine, build(true, moves, true)), moves);
    print("rows alone", time_steps(*engine, build(true, 0, false)), 0);
  }
}

std::vector<int32_t> numbers_in(const std::string& text) {
  std::vector<int32_t> numbers;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    int32_t number = 0;
    at = std::from_chars(at, end, number).ptr;
    if (number < 1) throw_error(ErrorKind::bad_call, "'{}' is no list of numbers from 1 on", text);
    numbers.push_back(number);
  }
  return numbers;
}

Args parse(const std::vector<std::string>& words) {
  Args args;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      args.engine.model = word;
      continue;
    }
    if (++i == words.size()) throw_error(ErrorKind::bad_call, "{} needs a value", word);
    if (word == "--device")
      args.engine.device = words[i];
    else if (word == "--load-format")
      args.engine.load_format = words[i];
    else if (word == "--batch")
      args.batch = numbers_in(words[i]).at(0);
    else if (word == "--context")
      args.context = numbers_in(words[i]).at(0);
    else if (word == "--moves")
      args.moves = numbers_in(words[i]);
    else
      throw_error(ErrorKind::bad_call, "unknown option {}", word);
  }
  if (args.engine.model.empty() || args.moves.empty()) throw_error(ErrorKind::bad_call, "a model is needed");
  return args;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  try {
    ingot::run(ingot::parse({argv + 1, argv + argc}));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moves_bench: {}\n", error.what());
    return 1;
  }
}
