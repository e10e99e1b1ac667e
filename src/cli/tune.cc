// Ways of computing products, timed ahead of the first request: `ingot serve` does the same while it is idle.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cli/common.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "engine/internals.h"

namespace ingot::cli {
namespace {

struct TuneArgs {
  ModelArgs model;
  bool again = false;
};

void print_table(const std::vector<TunedProduct>& table, double memory_gb_s) {
  fmt::print("{:<44} {:>5}  {:<30} {:>9} {:>9} {:>6} {:>8} {:>8}\n", "product", "rows", "way", "us", "default",
             "faster", "GB/s", "TFLOP/s");
  for (const TunedProduct& line : table) {
    const auto rate = [&line](double amount, double unit) { return line.us > 0 ? amount / line.us * unit : 0.0; };
    const bool compares = line.us > 0 && line.default_us > 0;
    fmt::print("{:<44} {:>5}  {:<30} {:>9.2f} {:>9.2f} {:>6} {:>8.0f} {:>8.1f}{}\n", line.product, line.rows,
               line.way == line.default_way ? line.way + " (default)" : line.way, line.us, line.default_us,
               compares ? fmt::format("{:.2f}x", line.default_us / line.us) : "-", rate(line.bytes, 1e-3),
               rate(line.operations, 1e-6), line.kept ? "  kept" : "");
  }
  // One order of summation lets the matrix unit multiply eight rows for one: what is left of the memory's speed.
  double bytes = 0, us = 0;
  for (const TunedProduct& line : table)
    if (line.rows == 1) {
      bytes += line.bytes;
      us += line.us;
    }
  if (us > 0)
    fmt::print("\nproducts of one row read {:.0f} GB/s together; a plain copy moves {:.0f} GB/s: {:.0f} % of it\n",
               bytes / us * 1e-3, memory_gb_s, bytes / us * 0.1 / memory_gb_s);
}

void tune(const TuneArgs& args) {
  const std::unique_ptr<Engine> engine = load_engine(args.model);
  Backend& device = EngineInternals::device(*engine);
  Tuner* tuner = device.tuner();
  if (tuner == nullptr)
    throw_error(ErrorKind::declined, "{} ({}) has nothing to tune: it is for GPUs, with their own kernels",
                device.info().name, device.info().description);
  if (args.again) tuner->forget();
  Progress progress("timing");
  const size_t before = tuner->done();
  do {
    progress.update(tuner->done() - before, tuner->all() - before);
    for (const std::string& note : tuner->take_notes()) progress.note(note);
  } while (tuner->step());
  progress.clear();
  fmt::print("{}\nknown before: {}\n\n", device.info().description, device.info().tuning);
  print_table(tuner->table(), tuner->memory_gb_s());
}

}  // namespace

void add_tune(Program& program) {
  auto [command, args] = program.add_command(
      "tune", "time a GPU's ways of computing the products of a model, and remember the fastest", tune);
  add_engine_options(command, args.model);
  add_model_argument(command, args.model);
  command.option("--max-seqs", args.model.engine.max_seqs, "sequences that run at a time, as for `ingot serve`")
      .show_default()
      .range(1, 4096);
  command.flag("--again", args.again, "also what was timed before");
}

}  // namespace ingot::cli
