#include "backend/metal/linear/timer.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "backend/metal/commands.h"
#include "backend/metal/context.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr size_t kMostCompared = size_t{32} << 20;  // bytes of outputs
constexpr size_t kNoiseBytes = 1000004;             // no multiple of a row's, so that rows differ
constexpr int kRuns = 3;                            // the first is not counted
constexpr int kMostCount = 400;

// Between 1/16 and 1/2 or so, of either sign: no sum of real weights overflows.
std::vector<std::byte> noise(DType type) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(kNoiseBytes);
  const auto put = [&bytes](size_t at, auto bits) { std::memcpy(bytes.data() + at, &bits, sizeof bits); };
  if (type == DType::f32)
    for (size_t i = 0; i < kNoiseBytes; i += 4) put(i, static_cast<uint32_t>((random() & 0x80ffffff) | 0x3d800000));
  else
    for (size_t i = 0; i < kNoiseBytes; i += 2)
      put(i, static_cast<uint16_t>((random() & 0x80ff) | (type == DType::f16 ? 0x2c00 : 0x3e00)));
  return bytes;
}

// Sets what products do, as long as it lives.
class Forced {
 public:
  Forced(LinearChoices& choices, const LinearWay& way) : choices_(choices) { choices_.force(way); }
  ~Forced() { choices_.force({}); }

 private:
  LinearChoices& choices_;
};

}  // namespace

void ProductTimer::begin(const SeenProduct& product) {
  product_ = &product;
  fill_input();
  if (product.shape.experts > 0) fill_route();
  copy_weights();
}

void ProductTimer::end() {
  product_ = nullptr;
  weights_.clear();
  copies_.clear();
  if (room_) context_.memory.release(room_);
}

void ProductTimer::fill_input() {
  const std::vector<std::byte> bytes = noise(product_->shape.in);
  const BufferView in = product_->operands.in;
  std::vector<std::byte> all(in.bytes);
  for (size_t at = 0; at < all.size(); at += bytes.size())
    std::copy_n(bytes.begin(), std::min(bytes.size(), all.size() - at), all.begin() + static_cast<int64_t>(at));
  context_.memory.write(in, all);
}

// Pairs of rows and experts as RouteOp leaves them, experts drawn at random.
void ProductTimer::fill_route() {
  const LinearShape& shape = product_->shape;
  const auto pairs = static_cast<size_t>(shape.rows);
  std::mt19937 random(2);
  std::vector<int32_t> experts(pairs), order(pairs);
  for (int32_t& expert : experts)
    expert = static_cast<int32_t>(shape.first_expert + static_cast<int64_t>(random() % uint64_t(shape.experts)));
  for (size_t i = 0; i < pairs; ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(experts[static_cast<size_t>(a)], a) < std::pair(experts[static_cast<size_t>(b)], b);
  });
  std::vector<int32_t> starts(product_->operands.starts.bytes / 4), items(product_->operands.items.bytes / 4);
  for (size_t e = 0; e < starts.size(); ++e)
    starts[e] = static_cast<int32_t>(
        std::ranges::count_if(experts, [e](int32_t expert) { return static_cast<size_t>(expert) < e; }));
  for (size_t e = 0; e + 1 < starts.size(); ++e)
    for (int32_t first = starts[e]; first < starts[e + 1]; first += static_cast<int32_t>(shape.item_rows)) {
      const auto item = static_cast<size_t>(items[0]++);
      items[1 + 2 * item] = static_cast<int32_t>(e);
      items[2 + 2 * item] = first;
    }
  context_.memory.write(product_->operands.starts, std::as_bytes(std::span(starts)));
  context_.memory.write(product_->operands.order, std::as_bytes(std::span(order)));
  context_.memory.write(product_->operands.items, std::as_bytes(std::span(items)));
}

void ProductTimer::copy_weights() {
  weights_ = product_->weights;
  copies_.clear();
  size_t all = 0;
  const auto bytes_of = [](const PackedMatrix* matrix) { return matrix != nullptr ? matrix->data->length() : 0; };
  for (const SeenProduct::Weights& one : weights_) all += bytes_of(one.weight) + bytes_of(one.up);
  if (all >= options_.rotated_bytes) return;
  if (!room_) {
    room_ = context_.memory.new_private(options_.rotated_bytes, "work copies");
    context_.memory.commit_residency();
  }
  size_t used = 0;
  const auto copy = [&](const PackedMatrix* from) -> const PackedMatrix* {
    if (from == nullptr) return nullptr;
    PackedMatrix& to = copies_.emplace_back(*from);
    to.data = room_;
    for (Segment& segment : to.segments) segment.offset += used;
    context_.memory.copy({from->data.get(), 0, bytes_of(from)}, {room_.get(), used, bytes_of(from)});
    used += bytes_of(from);
    return &to;
  };
  const auto same = [](const PackedMatrix* of, const PackedMatrix* from, const Segment* segment) {
    return of != nullptr ? &of->segments[static_cast<size_t>(segment - from->segments.data())] : nullptr;
  };
  for (size_t i = 0; i < kMostCount; ++i) {
    const SeenProduct::Weights from = product_->weights[i % product_->weights.size()];
    if (used + bytes_of(from.weight) + bytes_of(from.up) > options_.rotated_bytes) break;
    const PackedMatrix *weight = copy(from.weight), *up = copy(from.up);
    weights_.push_back({weight, same(weight, from.weight, from.segment), up, same(up, from.up, from.up_segment)});
  }
}

void ProductTimer::encode(const LinearWay& way, size_t turn) {
  const Forced forced(choices_, way);
  const SeenProduct::Weights& weights = weights_[turn % weights_.size()];
  Operands operands = product_->operands;
  operands.weight = weights.weight;
  operands.segment = weights.segment;
  operands.up = weights.up;
  operands.up_segment = weights.up_segment;
  encode_product(context_, product_->shape, operands);
}

// Compiles what is missing, and refuses what the device has no registers or memory for.
void ProductTimer::prepare(const LinearWay& way) {
  context_.encoder.role("");
  context_.encoder.begin_rehearsal();
  try {
    encode(way, 0);
  } catch (...) {
    context_.encoder.end_rehearsal();
    throw;
  }
  context_.encoder.end_rehearsal();
}

double ProductTimer::run_commands(const std::function<void(MTL::CommandBuffer*)>& encode_all) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  MTL::CommandBuffer* commands = queue_->commandBuffer();
  encode_all(commands);
  commit(commands, counters_);
  wait_for(commands, counters_);
  if (commands->error() != nullptr)
    throw_error(ErrorKind::device, "gpu: a product that was timed failed: {}",
                commands->error()->localizedDescription()->utf8String());
  return (commands->GPUEndTime() - commands->GPUStartTime()) * 1e6;
}

double ProductTimer::run(const LinearWay& way, int count, bool clears) {
  const double us = run_commands([&](MTL::CommandBuffer* commands) {
    MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
    const BufferView out = product_->operands.out;
    if (clears) blit->fillBuffer(out.buffer, NS::Range(out.offset, out.bytes / 4 * 4), 0);
    blit->updateFence(fence_);
    blit->endEncoding();
    context_.encoder.begin(commands, fence_);
    for (int i = 0; i < count; ++i) encode(way, static_cast<size_t>(i));
    context_.encoder.end();
  });
  return us / count;
}

std::vector<std::byte> ProductTimer::result(const LinearWay& way) {
  prepare(way);
  run(way, 1, true);
  const BufferView out = product_->operands.out;
  std::vector<std::byte> bytes(std::min(out.bytes / 4 * 4, kMostCompared));
  context_.memory.read(out, bytes);
  return bytes;
}

double ProductTimer::time(const LinearWay& way) {
  prepare(way);
  int count = options_.least_count;
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const double us = run(way, count, true);
    if (i == 0)
      count = std::clamp(static_cast<int>(options_.least_us / std::max(us, 1.0)), options_.least_count, kMostCount);
    else
      best = i == 1 ? us : std::min(best, us);
  }
  return best;
}

double ProductTimer::memory_gb_s() {
  const size_t half = options_.rotated_bytes / 2;
  BufferPtr both = context_.memory.new_zeros(2 * half, "work copies");
  double best = 0;
  for (int i = 0; i < kRuns + 1; ++i) {
    const double us = run_commands([&](MTL::CommandBuffer* commands) {
      MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
      blit->copyFromBuffer(both.get(), 0, both.get(), half, half);
      blit->endEncoding();
    });
    best = i == 0 ? us : std::min(best, us);
  }
  context_.memory.release(both);
  return static_cast<double>(2 * half) / best * 1e-3;
}

}  // namespace ingot::metal
