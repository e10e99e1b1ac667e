#include "ingot/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "core/error.h"
#include "core/settings.h"
#include "engine/devices.h"
#include "engine/identity.h"
#include "engine/internals.h"
#include "engine/loader.h"
#include "engine/ranks.h"
#include "model/decoder.h"
#include "step/stage.h"
#include "step/validate.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The first row of an MTP layer sees no token.
EmbeddedRows embedded_rows(const LoadedModel& model) {
  const bool masks = model.config.head.kind == ModelConfig::Head::Kind::mtp;
  const int64_t width = model.config.hidden;
  return {width, [table = model.embedded, masks, width](int32_t token, int32_t position, float* out) {
            if (masks && position == 0)
              std::fill_n(out, width, 0.0f);
            else
              table->read(token, 0, 1.0f, out);
          }};
}

}  // namespace

// Rows of a step that verify a draft under one sampler slot.
struct Draft {
  int32_t slot = 0;
  size_t first = 0;             // among the step's outputs
  std::vector<int32_t> tokens;  // that the rows behind the first take for granted
};

// A step between submit() and wait().
struct InFlight {
  uint64_t id = 0;
  int ring = 0;
  std::vector<RowOutput> output;
  std::vector<Draft> drafts;
  size_t pooled = 0, states = 0;
  bool answered = false;  // by the last stage
  DeviceCounters before;  // at the start of submit()
  StepStats stats;
};

struct Engine::Impl {
  explicit Impl(LoadedModel loaded)
      : model(std::move(loaded)), device(*model.device), validator(model.plan.limits), info(describe(model.config)) {
    history.slot_lengths.assign(static_cast<size_t>(model.plan.limits.sampler_slots), -1);
    history.slot_capacity = model.plan.sampler.max_tokens;
    reset_by.assign(history.slot_lengths.size(), 0);
    history.pooled_rows.assign(static_cast<size_t>(model.plan.limits.sampler_slots), 0);
    if (model.embedded) embedded = embedded_rows(model);
  }

  StepTicket submit(const Step& step);
  StepResult wait(StepTicket ticket);
  void hand_out(const StagedStep& step);
  std::span<const std::byte> take_answer(const InFlight& flight);
  void remember(const Step& step, InFlight& flight);
  void forget_refused(const InFlight& flight, const StepResult& result);

  LoadedModel model;
  Backend& device;
  StepValidator validator;
  ModelInfo info;
  EmbeddedRows embedded;  // of a head
  StepHistory history;
  std::vector<uint64_t> reset_by;  // the step that last reset a sampler slot
  std::deque<InFlight> in_flight;
  uint64_t last_id = 0;
  std::vector<std::byte> message;  // to other ranks
  std::vector<std::byte> answer;   // of the last stage
};

StepTicket Engine::Impl::submit(const Step& step) {
  const EngineLimits& limits = model.plan.limits;
  if (in_flight.size() == static_cast<size_t>(limits.steps_in_flight))
    throw_error(ErrorKind::bad_call, "{} steps are in flight: wait for one before submitting another",
                in_flight.size());
  validator.validate(step, history);

  InFlight flight;
  flight.id = last_id + 1;
  flight.ring = static_cast<int>(flight.id % static_cast<uint64_t>(limits.steps_in_flight));
  flight.output = step.output;
  flight.pooled = step.pooled.size();
  flight.states = step.state_rows.size();
  flight.answered = model.options.pp > 1 && step.num_scheduled_tokens > 0;
  flight.before = device.counters();

  const auto stage_start = Clock::now();
  const StagedStep staged = stage_step(step, limits.vocab, limits.block_size, flight.ring, device.stage(flight.ring),
                                       embedded.read ? &embedded : nullptr);
  flight.stats.stage_us = micros_since(stage_start);

  const DeviceCounters encode_start = device.counters();
  const auto encode_time = Clock::now();
  device.begin(staged);
  if (staged.tokens > 0) model.decoder->encode(staged, device);
  flight.stats.encode_us = micros_since(encode_time);
  const DeviceCounters encode_end = device.counters();

  flight.stats.encode_waits = static_cast<uint32_t>(encode_end.waits - encode_start.waits);
  flight.stats.encode_readbacks = static_cast<uint32_t>(encode_end.readbacks - encode_start.readbacks);
  flight.stats.encode_allocations = static_cast<uint32_t>(encode_end.allocations - encode_start.allocations);
  flight.stats.encode_compiles = static_cast<uint32_t>(encode_end.compiles - encode_start.compiles);
  flight.stats.dispatches = static_cast<uint32_t>(encode_end.dispatches - encode_start.dispatches);

  if (model.group) hand_out(staged);
  device.submit();
  flight.stats.submissions = static_cast<uint32_t>(device.counters().submissions - flight.before.submissions);
  remember(step, flight);
  last_id = flight.id;
  in_flight.push_back(std::move(flight));
  return {last_id};
}

// To the ranks that follow: the step as it is staged, see follower.cc.
void Engine::Impl::hand_out(const StagedStep& step) {
  message.resize(sizeof step + step.bytes);
  std::memcpy(message.data(), &step, sizeof step);
  std::memcpy(message.data() + sizeof step, device.stage(step.ring).data(), step.bytes);
  model.group->tell(message);
}

// Keeps what the next step may refer to: who drew a token, how full the sampler slots are, how much was pooled.
void Engine::Impl::remember(const Step& step, InFlight& flight) {
  for (const PooledSequence& pooled : step.pooled)
    history.pooled_rows[static_cast<size_t>(pooled.slot)] = step.seq_lens[static_cast<size_t>(pooled.seq)];
  for (const SamplerReset& reset : step.sampler_resets) {
    history.slot_lengths[reset.slot] = static_cast<int64_t>(reset.prompt_ids.size() + reset.output_ids.size());
    reset_by[reset.slot] = flight.id;
  }
  const bool chains = model.plan.limits.chains_tokens;
  history.previous_tokens.assign(chains ? step.sample_rows.size() : 0, false);
  for (size_t r = 0; r < step.sample_rows.size(); ++r) {
    const bool drew = draws_token(step.output[r]);
    if (chains) history.previous_tokens[r] = drew;
    if (drew && step.sampler_slot[r] >= 0) ++history.slot_lengths[step.sampler_slot[r]];
    if (!continues_draft(step, static_cast<int64_t>(r))) continue;
    if (!continues_draft(step, static_cast<int64_t>(r) - 1))
      flight.drafts.push_back({.slot = step.sampler_slot[r], .first = r - 1, .tokens = {}});
    flight.drafts.back().tokens.push_back(step.token_ids[step.sample_rows[r]]);
  }
}

// A slot takes no token of a draft behind the first that was drawn otherwise; until here they were counted.
void Engine::Impl::forget_refused(const InFlight& flight, const StepResult& result) {
  for (const Draft& draft : flight.drafts) {
    if (reset_by[draft.slot] > flight.id) continue;
    size_t taken = 0;
    while (taken < draft.tokens.size() && result.rows[draft.first + taken].token == draft.tokens[taken]) ++taken;
    history.slot_lengths[draft.slot] -= static_cast<int64_t>(draft.tokens.size() - taken);
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
  result.stats.move_us = times.move_us;
  result.stats.weight_bytes = times.weight_bytes;
  result.stats.kv_bytes = times.kv_bytes;
  result.stats.wire_bytes = times.wire_bytes;
  result.stats.wire_messages = static_cast<uint32_t>(times.wire_messages);
  result.stats.collectives = static_cast<uint32_t>(times.collectives);
  const std::span<const std::byte> output = flight.answered ? take_answer(flight) : device.output(flight.ring);
  if (flight.pooled > 0) result.pooled = read_pooled(model.plan.output, output, flight.pooled);
  if (flight.states > 0) result.states = read_states(model.plan.output, output, flight.states);
  if (!flight.output.empty()) result.rows = read_rows(model.plan.output, output, flight.output);
  forget_refused(flight, result);
  return result;
}

// What the last stage sent of its outputs (SendOutputOp). Its receipt is no operation of the device here, which goes on
// with the next step meanwhile.
std::span<const std::byte> Engine::Impl::take_answer(const InFlight& flight) {
  const OutputLayout& layout = model.plan.output;
  const OutputCounts counts = OutputCounts::of(flight.output, flight.pooled);
  answer.resize(layout.bytes);
  model.group->take_answer((model.options.pp - 1) * model.options.tp,
                           std::span(answer).first(counts.packed_bytes(layout)));
  unpack_output(layout, counts, answer.data());
  return answer;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::load(const EngineOptions& options) {
  if (options.group) tell_options(*options.group, options);
  return std::make_unique<Engine>(std::make_unique<Impl>(load_model(options)));
}

const EngineLimits& Engine::limits() const { return impl_->model.plan.limits; }
const ModelInfo& Engine::model() const { return impl_->info; }
const MemoryUse& Engine::memory() const { return impl_->model.plan; }
const std::string& Engine::device_name() const { return impl_->device.info().name; }
const std::string& Engine::device_description() const { return impl_->device.info().description; }
std::string Engine::identity(const FileNotes& notes) const {
  return cache_identity(impl_->model.options, impl_->model.plan.kv, impl_->device.info(), notes);
}
std::span<std::byte> Engine::host_block(int64_t block) const { return impl_->device.host_block(block); }
void Engine::validate(const Step& step) const { impl_->validator.validate(step, impl_->history); }
StepTicket Engine::submit(const Step& step) { return impl_->submit(step); }
StepResult Engine::wait(StepTicket ticket) { return impl_->wait(ticket); }

// Ranks that share a model keep in step: none of them is left alone with this.
bool Engine::tune() {
  Tuner* tuner = impl_->model.group || !impl_->in_flight.empty() ? nullptr : impl_->device.tuner();
  if (tuner == nullptr) return false;
  const bool goes_on = tuner->step();
  for (const std::string& note : tuner->take_notes()) fmt::print(stderr, "ingot: {}\n", note);
  return goes_on;
}

Backend& EngineInternals::device(Engine& engine) { return engine.impl_->device; }
const ModelConfig& EngineInternals::config(const Engine& engine) { return engine.impl_->model.config; }

}  // namespace ingot
