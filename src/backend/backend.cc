#include "backend/backend.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace ingot {

void Backend::describe(DeviceInfo info, ModelLimits limits) {
  has_.activation = info.activation;
  info_ = std::move(info);
  limits_ = std::move(limits);
}

std::optional<std::string> Backend::decline(const ModelShape& m, const KvLayout& kv) const {
  const ModelLimits& most = limits_;
  if (m.head_size < 8 || m.head_size % 8 != 0 || m.head_size > most.head_size)
    return fmt::format("head size {}: {} multiples of 8 up to {}", m.head_size, most.runs, most.head_size);
  if (m.kv_heads < 1 || m.heads % m.kv_heads != 0)
    return fmt::format("{} query heads do not divide among {} KV heads", m.heads, m.kv_heads);
  if (m.heads / m.kv_heads > most.group)
    return fmt::format("{} query heads a KV head: {} at most {}", m.heads / m.kv_heads, most.runs, most.group);
  if (m.rope_dims % 2 != 0 || m.rope_dims > m.head_size)
    return fmt::format("{} rotary dims of a head of {}: expected an even number, at most the head size", m.rope_dims,
                       m.head_size);
  if (kv.dtype == KvType::bf16 && !most.no_bf16_cache.empty()) return most.no_bf16_cache;
  if (kv.block_size < 8 || kv.block_size % 8 != 0)
    return fmt::format("block size {}: {} multiples of 8", kv.block_size, most.runs);
  if (m.experts > most.experts || m.experts_per_token > most.experts_per_token)
    return fmt::format("{} of {} experts a token: {} up to {} of {}", m.experts_per_token, m.experts, most.runs,
                       most.experts_per_token, most.experts);
  if (m.ranks > 1 && !most.no_groups.empty()) return fmt::format("{} ranks: {}", m.ranks, most.no_groups);
  return std::nullopt;
}

// ---- load ----

WeightId Backend::add(WeightSize size) {
  has_.weights.push_back(size);
  return WeightId{static_cast<int32_t>(has_.weights.size()) - 1};
}

WeightId Backend::load_matrix(const MatrixSpec& spec) { return add({spec.rows, spec.cols, add_matrix(spec)}); }

std::optional<WeightId> Backend::find_matrix(const MatrixSpec& spec) {
  const std::optional<size_t> bytes = add_found(spec);
  if (!bytes) return std::nullopt;
  return add({spec.rows, spec.cols, *bytes});
}

WeightId Backend::load_vector(const std::string& name, std::span<const float> values) {
  if (values.empty()) throw_error(ErrorKind::bad_file, "{}: the vector is empty", name);
  return add({0, static_cast<int64_t>(values.size()), add_vector(name, values)});
}

void Backend::create_scratch(size_t bytes) {
  make_scratch(bytes);
  has_.scratch_bytes = bytes;
}

void Backend::create_kv_cache(const KvLayout& layout) {
  make_kv_cache(layout);
  has_.kv = layout;
}

void Backend::create_host_blocks(int64_t count) {
  if (count == 0) return;
  host_blocks_ = make_host_blocks(count, has_.layer(0).layers * 2 * has_.kv->block_bytes());
  has_.host_blocks = count;
}

std::span<std::byte> Backend::host_block(int64_t block) const {
  if (block < 0 || block >= has_.host_blocks)
    throw_error(ErrorKind::bad_call, "{}: no host block {}, there are {}", has_.who, block, has_.host_blocks);
  return host_blocks_[static_cast<size_t>(block)];
}

void Backend::create_sampler(const SamplerLayout& layout) {
  make_sampler(layout);
  has_.sampler = layout;
}

void Backend::create_io(size_t stage_bytes, const OutputLayout& output, int rings) {
  rings_.assign(static_cast<size_t>(rings), Ring());
  const auto stages = make_io(stage_bytes, output, rings);
  for (size_t ring = 0; ring < stages.size(); ++ring) rings_[ring].stage = stages[ring];
  has_.output = output;
}

// ---- outside a step ----

void Backend::check_idle(const char* call) const {
  for (const Ring& ring : rings_)
    if (ring.submitted)
      throw_error(ErrorKind::internal, "{}: {}() while a step is in flight; wait for it first", has_.who, call);
}

void Backend::check_cache(int64_t layer, size_t bytes) const {
  if (const size_t want = has_.layer(layer).half_bytes(); bytes != want)
    throw_error(ErrorKind::bad_call, "{}: one layer of the KV cache has {} bytes for K and for V, not {}", has_.who,
                want, bytes);
}

void Backend::write_scratch(Region region, std::span<const std::byte> bytes) {
  check_idle("write_scratch");
  has_.bytes(region, bytes.size());
  copy_to(region, bytes);
}

void Backend::read_scratch(Region region, std::span<std::byte> bytes) {
  check_idle("read_scratch");
  has_.bytes(region, bytes.size());
  ++counters_.readbacks;
  copy_from(region, bytes);
}

void Backend::write_cache(int64_t layer, bool value, std::span<const std::byte> bytes) {
  check_idle("write_cache");
  check_cache(layer, bytes.size());
  copy_to_cache(layer, value, bytes);
}

void Backend::read_cache(int64_t layer, bool value, std::span<std::byte> bytes) {
  check_idle("read_cache");
  check_cache(layer, bytes.size());
  ++counters_.readbacks;
  copy_from_cache(layer, value, bytes);
}

// ---- a step ----

void Backend::rehearse(const StagedStep& step, const std::function<void()>& encode_step) {
  check_idle("rehearse");
  has_.step = step;
  has_.stage = nullptr;
  failing_ = false;
  if (!begin_rehearsal()) return;
  struct End {
    Backend& device;
    ~End() {
      device.phase_ = Phase::idle;
      device.end_rehearsal();
    }
  } end{*this};
  phase_ = Phase::rehearsing;
  encode(PrepareOp{});
  encode_step();
}

void Backend::begin(const StagedStep& step) {
  phase_ = Phase::idle;  // a step whose encoding threw is dropped
  const Ring& ring = ring_at(step.ring);
  if (ring.submitted)
    throw_error(ErrorKind::internal, "{}: ring {} is still in flight; wait for it first", has_.who, step.ring);
  has_.step = step;
  has_.stage = ring.stage.data();
  has_.times = {};
  begin_step(step.ring);
  failing_ = failures_due_ > 0 && failures_due_-- > 0;
  phase_ = Phase::encoding;
  encode(PrepareOp{});
}

void Backend::encode(const Op& op) {
  if (phase_ == Phase::idle)
    throw_error(ErrorKind::internal, "{}: an operation outside begin() and submit()", has_.who);
  const bool any = std::visit([this](const auto& one) { return one.check(has_); }, op);
  if (any && !failing_) take(op);
}

void Backend::submit() {
  if (phase_ != Phase::encoding) throw_error(ErrorKind::internal, "{}: submit() without begin()", has_.who);
  phase_ = Phase::idle;
  submit_step(has_.step.ring);
  Ring& ring = ring_at(has_.step.ring);
  ring.submitted = true;
  ring.fails = failing_;
  if (failing_) tell_failure(failure());
  ring.times = has_.times;
}

StepTimes Backend::wait(int index) {
  Ring& ring = ring_at(index);
  if (!ring.submitted) throw_error(ErrorKind::internal, "{}: ring {} has no step to wait for", has_.who, index);
  ring.submitted = false;
  finish_step(index, ring.times);
  if (ring.fails) throw Error(ErrorKind::device, failure() + ", submit it again");
  return ring.times;
}

std::span<const std::byte> Backend::output(int ring) {
  ++counters_.readbacks;
  return output_of(ring);
}

}  // namespace ingot
