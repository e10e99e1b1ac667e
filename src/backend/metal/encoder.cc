#include "backend/metal/encoder.h"

#include <fmt/format.h>

#include "backend/metal/commands.h"
#include "core/error.h"

namespace ingot::metal {

void Encoder::begin(MTL::CommandBuffer* commands, MTL::Fence* fence) {
  fence_ = fence;
  buffer_ = commands;
  if (profile_queue_ == nullptr) {
    commands_ = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
    commands_->waitForFence(fence);
  }
  accesses_.clear();
  pending_ = 0;
  current_ = nullptr;
  rehearsing_ = false;
}

void Encoder::end() {
  if (commands_ == nullptr) return;
  commands_->updateFence(fence_);
  commands_->endEncoding();
  commands_ = nullptr;
}

void Encoder::between(const std::function<void(MTL::CommandBuffer*)>& encode) {
  if (rehearsing_) return;
  if (profile_queue_ != nullptr) {
    MTL::CommandBuffer* own = profile_queue_->commandBuffer();
    encode(own);
    commit(own, counters_);
    return;
  }
  end();
  encode(buffer_);
  begin(buffer_, fence_);
}

void Encoder::begin_rehearsal() {
  rehearsing_ = true;
  accesses_.clear();
  pending_ = 0;
}

void Encoder::end_rehearsal() { rehearsing_ = false; }

void Encoder::use(std::string_view kernel, std::span<const Constant> constants) {
  current_ = &pipelines_.get({kernel, constants});
  threadgroup_bytes_ = 0;
  if (rehearsing_) return;
  begin_profiled();
  commands_->setComputePipelineState(current_->state.get());
}

void Encoder::begin_profiled() {
  if (profile_queue_ == nullptr) return;
  profiled_ = NS::RetainPtr(profile_queue_->commandBuffer());
  profiled_bytes_ = 0;
  commands_ = profiled_->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  commands_->waitForFence(fence_);
}

void Encoder::end_profiled(const std::string& name) {
  if (!profiled_) return;
  end();
  commit(profiled_.get(), counters_);
  timed_.push_back({*role_ != '\0' ? fmt::format("{} {}", role_, name) : name, std::move(profiled_), profiled_bytes_});
  profiled_ = {};
  accesses_.clear();
}

void Encoder::weight(uint32_t index, BufferView view) {
  if (rehearsing_) return;
  commands_->setBuffer(view.buffer, view.offset, index);
  profiled_bytes_ += view.bytes;
}

void Encoder::bytes(uint32_t index, const void* data, size_t size) {
  if (!rehearsing_) commands_->setBytes(data, size, index);
}

void Encoder::threadgroup_memory(uint32_t index, size_t size) {
  size = (size + 15) / 16 * 16;
  threadgroup_bytes_ += size;
  if (!rehearsing_) commands_->setThreadgroupMemoryLength(size, index);
}

void Encoder::argument(uint32_t index, BufferView view, Access::Kind kind) {
  if (rehearsing_) return;
  commands_->setBuffer(view.buffer, view.offset, index);
  accesses_.push_back({view.buffer, view.offset, view.offset + view.bytes, kind});
  ++pending_;
}

void Encoder::update_part(uint32_t index, BufferView view, size_t from) {
  if (rehearsing_) return;
  commands_->setBuffer(view.buffer, view.offset, index);
  accesses_.push_back({view.buffer, view.offset + from, view.offset + view.bytes, Access::Kind::write});
  ++pending_;
}

// Whether an earlier dispatch since the last barrier touched the same bytes, one of the two writing.
bool Encoder::conflicts(const Access& access) const {
  for (size_t i = 0; i + pending_ < accesses_.size(); ++i) {
    const Access& earlier = accesses_[i];
    if (earlier.kind == Access::Kind::read && access.kind == Access::Kind::read) continue;
    if (earlier.buffer == access.buffer && earlier.begin < access.end && access.begin < earlier.end) return true;
  }
  return false;
}

void Encoder::dispatch(MTL::Size groups, MTL::Size threads) {
  if (rehearsing_) host::note_dispatch(current_->state.get(), threads, threadgroup_bytes_);
  if (threads.width * threads.height * threads.depth > current_->max_threads)
    throw_error(ErrorKind::device, "gpu: kernel {} runs {} threads a threadgroup on this GPU, {} are needed",
                current_->kernel, current_->max_threads, threads.width * threads.height * threads.depth);
  if (rehearsing_) return;
  ++counters_.dispatches;
  place_barrier();
  commands_->dispatchThreadgroups(groups, threads);
  end_profiled(current_->kernel);
}

// In front of the dispatch being built, if it needs one.
void Encoder::place_barrier() {
  for (size_t i = accesses_.size() - pending_; i < accesses_.size(); ++i)
    if (conflicts(accesses_[i])) {
      commands_->memoryBarrier(MTL::BarrierScopeBuffers);
      ++counters_.barriers;
      accesses_.erase(accesses_.begin(), accesses_.end() - static_cast<int64_t>(pending_));
      break;
    }
  pending_ = 0;
}

void Encoder::gemm(const host::GemmProduct& product, BufferView x, BufferView weights, BufferView out) {
  if (rehearsing_) return;
  ++counters_.dispatches;
  begin_profiled();
  for (const auto& [view, kind] : {std::pair(x, Access::Kind::read), std::pair(weights, Access::Kind::read),
                                   std::pair(out, Access::Kind::write)}) {
    accesses_.push_back({view.buffer, view.offset, view.offset + view.bytes, kind});
    ++pending_;
  }
  place_barrier();
  host::encode_gemm(commands_, product, x, weights, out);
  end_profiled("gemm");
}

}  // namespace ingot::metal
