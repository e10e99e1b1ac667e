#include "ingot/engine.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "core/error.h"
#include "core/settings.h"
#include "engine/devices.h"
#include "engine/loader.h"
#include "engine/stage.h"
#include "engine/validate.h"
#include "model/decoder.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

constexpr int kRings = 2;  // steps in flight

}  // namespace

// A step between submit() and wait().
struct InFlight {
  uint64_t id = 0;
  int ring = 0;
  std::vector<RowOutput> output;
  DeviceCounters before;  // at the start of submit()
  StepStats stats;
};

struct Engine::Impl {
  explicit Impl(LoadedModel loaded)
      : model(std::move(loaded)),
        device(*model.device),
        validator(model.plan.limits),
        output_layout(model.plan.output) {
    history.slot_lengths.assign(static_cast<size_t>(model.plan.limits.sampler_slots), -1);
    history.slot_capacity = model.plan.sampler.max_tokens;
  }

  StepTicket submit(const Step& step);
  StepResult wait(StepTicket ticket);
  void remember(const Step& step);
  std::vector<RowResult> read_rows(const InFlight& flight);

  LoadedModel model;
  Backend& device;
  StepValidator validator;
  OutputLayout output_layout;
  StepHistory history;
  std::deque<InFlight> in_flight;
  uint64_t last_id = 0;
};

StepTicket Engine::Impl::submit(const Step& step) {
  if (in_flight.size() == kRings)
    throw_error(ErrorKind::bad_call, "{} steps are in flight: wait for one before submitting another", kRings);
  validator.validate(step, history);

  InFlight flight;
  flight.id = last_id + 1;
  flight.ring = static_cast<int>(flight.id % kRings);
  flight.output = step.output;
  flight.before = device.counters();

  const auto stage_start = Clock::now();
  const StagedStep staged = stage_step(step, model.plan.limits.vocab, flight.ring, device.stage(flight.ring));
  flight.stats.stage_us = micros_since(stage_start);

  const DeviceCounters encode_start = device.counters();
  const auto encode_time = Clock::now();
  device.begin(staged);
  model.decoder->encode(staged, device);
  flight.stats.encode_us = micros_since(encode_time);
  const DeviceCounters encode_end = device.counters();

  flight.stats.encode_waits = static_cast<uint32_t>(encode_end.waits - encode_start.waits);
  flight.stats.encode_readbacks = static_cast<uint32_t>(encode_end.readbacks - encode_start.readbacks);
  flight.stats.encode_allocations = static_cast<uint32_t>(encode_end.allocations - encode_start.allocations);
  flight.stats.encode_compiles = static_cast<uint32_t>(encode_end.compiles - encode_start.compiles);
  flight.stats.dispatches = static_cast<uint32_t>(encode_end.dispatches - encode_start.dispatches);

  device.submit();
  flight.stats.submissions = static_cast<uint32_t>(device.counters().submissions - flight.before.submissions);
  remember(step);
  last_id = flight.id;
  in_flight.push_back(std::move(flight));
  return {last_id};
}

// Keeps what the next step may refer to: who drew a token, and how full the sampler slots are.
void Engine::Impl::remember(const Step& step) {
  for (const SamplerReset& reset : step.sampler_resets)
    history.slot_lengths[reset.slot] = static_cast<int64_t>(reset.prompt_ids.size() + reset.output_ids.size());
  history.previous_tokens.assign(step.sample_rows.size(), false);
  for (size_t r = 0; r < step.sample_rows.size(); ++r) {
    const RowOutput::Kind kind = step.output[r].kind;
    const bool drew = kind == RowOutput::Kind::token || kind == RowOutput::Kind::logprobs;
    history.previous_tokens[r] = drew;
    if (drew && step.sampler_slot[r] >= 0) ++history.slot_lengths[step.sampler_slot[r]];
  }
}

StepResult Engine::Impl::wait(StepTicket ticket) {
  if (in_flight.empty() || in_flight.front().id != ticket.id)
    throw_error(ErrorKind::bad_call, "step {} is not the oldest in flight", ticket.id);
  InFlight flight = std::move(in_flight.front());
  in_flight.pop_front();

  const uint64_t waits_before = device.counters().waits;
  StepTimes times;
  try {
    times = device.wait(flight.ring);
  } catch (...) {
    if (flight.id == last_id) history.previous_tokens.clear();  // its tokens do not exist
    throw;
  }
  StepResult result;
  result.stats = flight.stats;
  result.stats.waits = static_cast<uint32_t>(device.counters().waits - waits_before);
  result.stats.run_us = times.run_us;
  result.stats.gap_us = times.gap_us;
  result.stats.weight_bytes = times.weight_bytes;
  result.stats.kv_bytes = times.kv_bytes;
  result.rows = read_rows(flight);
  return result;
}

std::vector<RowResult> Engine::Impl::read_rows(const InFlight& flight) {
  std::vector<RowResult> rows(flight.output.size());
  if (rows.empty()) return rows;
  const std::span<const std::byte> memory = device.output(flight.ring);
  const OutputLayout& out = output_layout;
  const auto at = [&](size_t offset) { return memory.data() + offset; };
  const auto* tokens = reinterpret_cast<const int32_t*>(at(out.tokens));
  const auto* logprobs = reinterpret_cast<const float*>(at(out.logprobs));
  const auto* ranks = reinterpret_cast<const int32_t*>(at(out.ranks));
  const auto* top_ids = reinterpret_cast<const int32_t*>(at(out.top_ids));
  const auto* top_values = reinterpret_cast<const float*>(at(out.top_values));
  const auto* logits = reinterpret_cast<const float*>(at(out.logits));
  for (size_t r = 0; r < rows.size(); ++r) {
    const RowOutput& wanted = flight.output[r];
    RowResult& row = rows[r];
    if (wanted.kind == RowOutput::Kind::full_logits) {
      row.logits.assign(logits, logits + out.vocab);
      logits += out.vocab;
      continue;
    }
    row.token = tokens[r];
    if (wanted.kind == RowOutput::Kind::token) continue;
    row.logprob = logprobs[r];
    row.rank = ranks[r];
    for (int32_t i = 0; i < wanted.top; ++i)
      row.top.push_back({top_ids[r * out.max_top + i], top_values[r * out.max_top + i]});
  }
  return rows;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::load(const EngineOptions& options) {
  return std::make_unique<Engine>(std::make_unique<Impl>(load_model(options)));
}

const EngineLimits& Engine::limits() const { return impl_->model.plan.limits; }
const ModelConfig& Engine::config() const { return impl_->model.config; }
const MemoryPlan& Engine::memory_plan() const { return impl_->model.plan; }
const std::string& Engine::device_description() const { return impl_->device.info().description; }
Backend& Engine::device() { return impl_->device; }
void Engine::validate(const Step& step) const { impl_->validator.validate(step, impl_->history); }
StepTicket Engine::submit(const Step& step) { return impl_->submit(step); }
StepResult Engine::wait(StepTicket ticket) { return impl_->wait(ticket); }

}  // namespace ingot
