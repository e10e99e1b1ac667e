#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backend/backend.h"
#include "backend/cpu/peak.h"
#include "cli/bench_speculation.h"
#include "cli/common.h"
#include "cli/measuring.h"
#include "cli/options.h"
#include "cli/plot.h"
#include "cli/progress.h"
#include "cli/traffic.h"
#include "core/bandwidth.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/threads.h"
#include "engine/internals.h"
#include "engine/memory_plan.h"
#include "ingot/step_builder.h"

namespace ingot::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchArgs {
  ModelArgs model;
  std::vector<int32_t> batches = {1, 2, 4, 8, 16};
  int64_t prompt_len = 128;
  int64_t gen_len = 32;
  std::string plot;
  int32_t in_flight = 0;  // 0: one a stage
  bool shared_prompt = false;
  bool profile = false;
  bool json = false;
  bool traffic = false;
  SpeculationArgs speculation{.kind = "off", .draft_model = ""};
  double draft_acceptance = -1;  // below 0: guesses come true as they do
  double limit_gb_s = 0;         // what the device can read; 0: measured for the CPU, unknown for others
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kWarmUpSteps = 3;

// Runs a batch of prompts of one length through real steps: prefill rows alone, then decode rows alone. No two prompts
// have the same tokens: in a mixture of experts rows go to experts of their own.
class BatchBench {
 public:
  BatchBench(Engine& engine, int32_t batch, int64_t prompt_len, int64_t gen_len, int32_t in_flight)
      : engine_(engine),
        batch_(batch),
        in_flight_(in_flight),
        prompt_len_(prompt_len),
        gen_len_(gen_len),
        builder_(engine.limits().block_size) {
    const int64_t blocks = (prompt_len + gen_len + engine.limits().block_size - 1) / engine.limits().block_size;
    blocks_.resize(static_cast<size_t>(batch));
    for (int32_t s = 0; s < batch; ++s) {
      blocks_[s].resize(static_cast<size_t>(blocks));
      std::iota(blocks_[s].begin(), blocks_[s].end(), static_cast<int32_t>(s * blocks));
    }
    // A prompt starts where the one before it has its second token.
    for (int64_t i = 0; i < prompt_len + batch; ++i) ids_.push_back(prompt_token(i, engine.limits().vocab));
  }

  // Called after each step with the rows of prompts and the decode steps so far, and with the speed of what runs.
  void on_progress(std::function<void(uint64_t done, double tokens_a_second)> call) { progress_ = std::move(call); }

  // Seconds for the prompts of the first `count` sequences.
  double prefill(int32_t count) {
    const auto start = Clock::now();
    std::vector<int64_t> done(static_cast<size_t>(count), 0);
    for (int32_t first = 0; first < count;) {
      builder_.clear();
      int32_t seqs = 0;
      for (int32_t s = first; s < count && seqs < engine_.limits().max_seqs; ++s, ++seqs) {
        const int64_t rows =
            std::min<int64_t>(engine_.limits().max_step_tokens - builder_.rows(), prompt_len_ - done[s]);
        if (rows <= 0) break;
        const int32_t row = builder_.add(std::span(ids_).subspan(s + done[s], rows), done[s], blocks_[s]);
        done[s] += rows;
        if (done[s] == prompt_len_) builder_.sample(row + static_cast<int32_t>(rows) - 1, greedy_);
      }
      const StepResult result = engine_.run(builder_.finish());
      note(result.stats);
      while (first < count && done[first] == prompt_len_) ++first;
      const int64_t rows = std::accumulate(done.begin(), done.end(), int64_t{0});
      if (progress_) progress_(static_cast<uint64_t>(rows), static_cast<double>(rows) / seconds_since(start));
    }
    prompt_rows_ = count * prompt_len_;
    return seconds_since(start);
  }

  // Gives every other sequence a copy of the first one's blocks, as if it had the same prompt.
  void copy_prompt() {
    for (int32_t s = 1; s < batch_; ++s) {
      builder_.clear();
      for (size_t b = 0; b < blocks_[0].size(); ++b)
        builder_.step().block_copies.push_back({blocks_[0][b], blocks_[s][b]});
      builder_.add(std::span(ids_).subspan(static_cast<size_t>(prompt_len_ - 1), 1), prompt_len_ - 1, blocks_[s]);
      note(engine_.run(builder_.finish()).stats);
    }
  }

  // Seconds for gen_len tokens of every sequence. Each step is submitted while the one before it runs: its tokens are
  // named as "what row r of the previous step sampled".
  double decode() {
    if (!engine_.limits().chains_tokens) return decode_in_parts();
    std::vector<int32_t> previous(static_cast<size_t>(batch_));
    for (int32_t s = 0; s < batch_; ++s) previous[s] = ids_[s + prompt_len_ - 1];
    // A device may take the first steps of a kind to prepare for more of them.
    for (int64_t i = 0; i < kWarmUpSteps; ++i) note(engine_.run(decode_step(0, previous, 0, batch_)).stats);
    const auto start = Clock::now();
    auto lap = start;
    StepTicket ticket = engine_.submit(decode_step(0, previous, 0, batch_));
    for (int32_t s = 0; s < batch_; ++s) previous[s] = -1 - s;
    for (int64_t i = 0; i < gen_len_; ++i) {
      StepTicket next;
      if (i + 1 < gen_len_) next = engine_.submit(decode_step(i + 1, previous, 0, batch_));
      const StepResult result = engine_.wait(ticket);
      note_decode(result.stats, lap, i > 0);
      ticket = next;
      if (progress_)
        progress_(static_cast<uint64_t>(prompt_rows_ + i + 1),
                  static_cast<double>(batch_ * (i + 1)) / seconds_since(start));
    }
    return seconds_since(start);
  }

  double step_ms() const { return median(step_ms_); }
  double gap_us() const { return median(gap_us_); }
  double encode_us() const { return median(encode_us_); }
  double weight_bytes() const { return weight_bytes_; }
  uint32_t most_submissions() const { return submissions_; }
  uint32_t most_waits() const { return waits_; }
  uint64_t wire_bytes() const { return wire_bytes_; }  // of the last step
  uint64_t wire_messages() const { return wire_messages_; }

 private:
  // Where steps cannot name each other's tokens: the sequences are divided among those in flight.
  double decode_in_parts() {
    const int32_t parts = std::min(in_flight_, batch_);
    std::vector<int32_t> tokens(static_cast<size_t>(batch_));
    for (int32_t s = 0; s < batch_; ++s) tokens[s] = ids_[s + prompt_len_ - 1];
    for (int64_t i = 0; i < kWarmUpSteps; ++i) note(engine_.run(decode_step(0, tokens, 0, batch_)).stats);
    const auto start = Clock::now();
    auto lap = start;
    struct Part {
      int32_t begin, end;
      int64_t index;
      StepTicket ticket;
    };
    std::deque<Part> flights;
    for (int32_t p = 0; p < parts; ++p) flights.push_back({batch_ * p / parts, batch_ * (p + 1) / parts, 0, {}});
    for (Part& part : flights) part.ticket = engine_.submit(decode_step(0, tokens, part.begin, part.end));
    for (int64_t done = 0; !flights.empty(); ++done) {
      Part part = flights.front();
      flights.pop_front();
      const StepResult result = engine_.wait(part.ticket);
      for (int32_t s = part.begin; s < part.end; ++s) tokens[s] = result.rows[s - part.begin].token;
      note_decode(result.stats, lap, done >= parts);
      if (++part.index < gen_len_) {
        part.ticket = engine_.submit(decode_step(part.index, tokens, part.begin, part.end));
        flights.push_back(part);
      }
      const int64_t steps = (done + 1) / parts;
      if (progress_)
        progress_(static_cast<uint64_t>(prompt_rows_ + steps),
                  static_cast<double>(batch_ * steps) / seconds_since(start));
    }
    return seconds_since(start);
  }

  // The sequences [begin, end).
  const Step& decode_step(int64_t index, const std::vector<int32_t>& tokens, int32_t begin, int32_t end) {
    builder_.clear();
    for (int32_t s = begin; s < end; ++s) {
      builder_.add({&tokens[s], 1}, prompt_len_ + index, blocks_[s]);
      builder_.sample(s - begin, greedy_);
    }
    return builder_.finish();
  }
  void note_decode(const StepStats& stats, Clock::time_point& lap, bool follows) {
    note(stats);
    const auto now = Clock::now();
    step_ms_.push_back(std::chrono::duration<double, std::milli>(now - lap).count());
    if (follows) gap_us_.push_back(stats.gap_us);
    encode_us_.push_back(stats.encode_us);
    weight_bytes_ += static_cast<double>(stats.weight_bytes);
    wire_bytes_ = stats.wire_bytes;
    wire_messages_ = stats.wire_messages;
    lap = now;
  }
  void note(const StepStats& stats) {
    submissions_ = std::max(submissions_, stats.submissions);
    waits_ = std::max(waits_, stats.waits);
  }

  Engine& engine_;
  int32_t batch_;
  int32_t in_flight_;  // steps, most
  int64_t prompt_len_;
  int64_t gen_len_;
  int64_t prompt_rows_ = 0;  // of all prompts that ran
  StepBuilder builder_;
  SamplingParams greedy_{.temperature = 0};
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<int32_t> ids_;
  std::vector<double> step_ms_, gap_us_, encode_us_;
  double weight_bytes_ = 0;
  uint32_t submissions_ = 0, waits_ = 0;
  uint64_t wire_bytes_ = 0, wire_messages_ = 0;
  std::function<void(uint64_t, double)> progress_;
};

nlohmann::ordered_json profile_json(const Profile& profile) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const auto& [name, line] : profile.lines())
    lines.push_back({{"kernel", name},
                     {"dispatches", line.dispatches},
                     {"seconds", line.seconds},
                     {"bytes", line.bytes},
                     {"operations", line.operations}});
  return lines;
}

void bench_speculation(const BenchArgs& args) {
  if (!args.plot.empty()) throw_error(ErrorKind::bad_call, "--plot draws the table without --speculate");
  SpeculationBenchArgs speculation{.model = args.model,
                                   .speculation = args.speculation,
                                   .batches = args.batches,
                                   .prompt_len = args.prompt_len,
                                   .gen_len = args.gen_len,
                                   .json = args.json};
  if (args.draft_acceptance >= 0) speculation.acceptance = args.draft_acceptance;
  print_speculation(speculation);
}

void bench(const BenchArgs& args) {
  if (followed_rank_0(args.model)) return;
  if (args.traffic) return print_traffic(args.model, args.batches, args.prompt_len, args.json);
  if (args.speculation.kind != "off" || !args.speculation.draft_model.empty()) return bench_speculation(args);
  if (args.draft_acceptance >= 0)
    throw_error(ErrorKind::bad_call, "--draft-acceptance is about guesses: give --speculate too");
  const int32_t largest = *std::max_element(args.batches.begin(), args.batches.end());
  ModelArgs model = args.model;
  EngineOptions& options = model.engine;
  options.max_seqs = largest;
  options.profile = args.profile;
  if (options.max_model_len == 0) options.max_model_len = args.prompt_len + args.gen_len;
  if (options.kv_blocks == 0)
    options.kv_blocks = largest * ((args.prompt_len + args.gen_len + options.block_size - 1) / options.block_size);

  const auto load_start = Clock::now();
  const std::unique_ptr<Engine> engine = load_engine(model);
  const double load_seconds = seconds_since(load_start);
  const int threads = options.threads > 0 ? options.threads : ThreadPool::available_cpus();
  {
    BatchBench warm_up(*engine, 1, std::min<int64_t>(args.prompt_len, 16), 2, 1);
    warm_up.prefill(1);
    warm_up.decode();
  }
  const bool is_cpu = engine->device_name() == "cpu";
  Backend& device = EngineInternals::device(*engine);
  device.take_profile();  // of the warm-up
  std::vector<std::pair<std::string, Profile>> profiles;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Progress progress("bench");
  const auto prompts = [&](int32_t batch) { return args.shared_prompt ? 1 : batch; };
  const auto work = [&](int32_t batch) {
    return static_cast<uint64_t>(prompts(batch)) * args.prompt_len + args.gen_len;
  };
  uint64_t before = 0, total = 0;
  for (const int32_t batch : args.batches) total += work(batch);
  for (size_t i = 0; i < args.batches.size(); ++i) {
    const int32_t batch = args.batches[i];
    const int32_t most = engine->limits().steps_in_flight;
    BatchBench run(*engine, batch, args.prompt_len, args.gen_len,
                   args.in_flight > 0 ? std::min(args.in_flight, most) : options.pp);
    run.on_progress([&](uint64_t done, double tokens_a_second) {
      progress.update(before + done, total, fmt::format("batch {}: {:.0f} tok/s", batch, tokens_a_second));
    });
    const double prefill = run.prefill(prompts(batch));
    if (args.profile) profiles.emplace_back(fmt::format("batch {}, prefill", batch), device.take_profile());
    if (args.shared_prompt) run.copy_prompt();
    device.take_profile();
    const double decode = run.decode();
    if (args.profile) profiles.emplace_back(fmt::format("batch {}, decode", batch), device.take_profile());
    // Which experts several rows share is known on a GPU alone.
    const bool counted = is_cpu || batch == 1 || engine->model().experts == 0;
    rows.push_back({{"batch", batch},
                    {"prefill_tok_s", static_cast<double>(prompts(batch) * args.prompt_len) / prefill},
                    {"decode_tok_s", static_cast<double>(batch * args.gen_len) / decode},
                    {"step_ms_p50", run.step_ms()},
                    {"step_gap_us_p50", run.gap_us()},
                    {"encode_us_p50", run.encode_us()},
                    {"weight_gb_s", counted ? nlohmann::ordered_json(run.weight_bytes() / decode / 1e9) : nullptr},
                    {"submissions_per_step", run.most_submissions()},
                    {"waits_per_step", run.most_waits()}});
    if (options.ranks() > 1) {
      rows.back()["wire_bytes_per_step"] = run.wire_bytes();
      rows.back()["wire_messages_per_step"] = run.wire_messages();
    }
    if (args.profile) {
      rows.back()["prefill_profile"] = profile_json(profiles[profiles.size() - 2].second);
      rows.back()["decode_profile"] = profile_json(profiles.back().second);
    }
    before += work(batch);
  }
  progress.clear();
  const auto peak_mb = [] { return static_cast<double>(peak_rss_bytes()) / 1e6; };
  const double model_peak_mb = peak_mb();  // before the bandwidth test takes its buffer
  const double planned_mb = static_cast<double>(engine->memory().total_bytes()) / 1e6;
  // A GPU reads its own memory: the host's bandwidth is no limit for it.
  const double bandwidth = measure_read_bandwidth(threads);
  const double limit = args.limit_gb_s > 0 ? args.limit_gb_s : is_cpu ? bandwidth : 0;
  Roofs roofs{.read_gb_s = limit};
  if (args.profile && is_cpu) {
    roofs = cpu::measure_peaks(cpu::choose_isa(options.isa), threads);
    roofs.read_gb_s = limit;
  }
  const std::string model_name = resolve_model(model.model);
  nlohmann::ordered_json report = {{"model", model_name},
                                   {"device", engine->device_description()},
                                   {"threads", threads},
                                   {"host_read_gb_s", bandwidth},
                                   {"limit_gb_s", limit},
                                   {"rows", rows},
                                   {"load_s", load_seconds},
                                   {"planned_mb", planned_mb},
                                   {"found_mb", static_cast<double>(engine->memory().found_bytes) / 1e6},
                                   {"model_peak_rss_mb", model_peak_mb},
                                   {"peak_rss_mb", peak_mb()}};
  if (args.profile)
    report["roofs"] = {{"read_gb_s", roofs.read_gb_s},
                       {"int8_gop_s", roofs.int8_gop_s},
                       {"bf16_gop_s", roofs.bf16_gop_s},
                       {"f32_gop_s", roofs.f32_gop_s}};
  if (!args.plot.empty()) write_batch_plot(args.plot, report);
  if (args.json) {
    fmt::print("{}\n", report.dump());
    return;
  }
  fmt::print(
      "{}\n{}; host reads {:.1f} GB/s; loaded in {:.2f} s, {:.0f} MB planned, peak {:.0f} MB; "
      "with the buffer of the bandwidth test, peak of the process {:.0f} MB\n\n",
      model_name, engine->device_description(), bandwidth, load_seconds, planned_mb, model_peak_mb,
      report["peak_rss_mb"].get<double>());
  fmt::print("{:>6} {:>14} {:>13} {:>9} {:>8} {:>14} {:>9}\n", "batch", "prefill tok/s", "decode tok/s", "step ms",
             "gap us", "weights GB/s", "of limit");
  for (const auto& row : rows) {
    const auto& weights = row["weight_gb_s"];
    fmt::print("{:>6} {:>14.1f} {:>13.1f} {:>9.2f} {:>8.1f} {:>14} {:>9}\n", row["batch"].get<int>(),
               row["prefill_tok_s"].get<double>(), row["decode_tok_s"].get<double>(), row["step_ms_p50"].get<double>(),
               row["step_gap_us_p50"].get<double>(),
               weights.is_null() ? "-" : fmt::format("{:.2f}", weights.get<double>()),
               weights.is_null() || limit <= 0 ? "-" : fmt::format("{:.0f}%", 100 * weights.get<double>() / limit));
  }
  if (!args.profile) return;
  if (is_cpu)
    fmt::print("\nroofs: reads {:.1f} GB/s; int8 {:.0f}, bf16 {:.0f}, fp32 {:.0f} GOP/s from registers\n",
               roofs.read_gb_s, roofs.int8_gop_s, roofs.bf16_gop_s, roofs.f32_gop_s);
  for (const auto& [title, profile] : profiles) fmt::print("\n{}\n{}", title, profile.table(roofs));
}

}  // namespace

void add_bench(Program& program) {
  auto [command, args] = program.add_command("bench", "prefill and decode speed at several batch sizes", bench);
  add_engine_options(command, args.model);
  add_model_argument(command, args.model);
  command.option("--batch", args.batches, "batch sizes").split_at(',').show_default().range(1, 4096);
  command.option("--prompt-len", args.prompt_len, "tokens a prompt").show_default().positive();
  command.option("--gen-len", args.gen_len, "tokens generated a sequence").show_default().positive();
  command.flag("--shared-prompt", args.shared_prompt,
               "run one prompt and copy its cache to the other sequences of a batch: for long ones");
  command.flag("--profile", args.profile, "also show where the time goes, by operation, against the machine's roofs");
  command.option("--in-flight", args.in_flight, "steps in flight with --pp: one a stage, or 1 to one more").positive();
  command.option("--limit-gb-s", args.limit_gb_s, "what the device can read, for the share; the CPU's is measured")
      .positive();
  command.option("--plot", args.plot, "also draw the table into an SVG file");
  command.flag("--json", args.json, "print one JSON object");
  add_speculation_options(command, args.speculation);
  command
      .option("--draft-acceptance", args.draft_acceptance,
              "with --speculate: let guesses come true with this chance, whatever the models say; for random weights")
      .range(0, 1);
  command.flag("--traffic", args.traffic, "count the bytes one decode step moves on the Metal device instead");
}

}  // namespace ingot::cli
