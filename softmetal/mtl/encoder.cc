#include <cstring>

#include "mtl/state.h"

using namespace softmetal;

namespace MTL {
namespace {

Memory* memory_of(const Resource* resource) { return Access::memory(resource).get(); }

// Apple's command buffers hold on to what they use, unless they were asked not to.
void keep(CommandList& list, CommandBuffer* buffer, const std::shared_ptr<void>& what) {
  if (Access::retained(buffer)) list.keep.push_back(what);
}

std::string bytes_text(size_t n) { return std::to_string(n) + " bytes"; }

void check_range(const char* call, const Buffer* buffer, size_t offset, size_t bytes) {
  if (offset > buffer->length() || bytes > buffer->length() - offset) {
    violate(std::string(call) + ": " + bytes_text(bytes) + " from offset " + std::to_string(offset) + " of the buffer" +
            quoted_label(buffer) + ", which has " + bytes_text(buffer->length()));
  }
}

}  // namespace

ComputeCommandEncoder::ComputeCommandEncoder() : state_(std::make_unique<ComputeState>()) {}
ComputeCommandEncoder::~ComputeCommandEncoder() = default;

void ComputeCommandEncoder::setComputePipelineState(const ComputePipelineState* state) {
  CommandList& l = list("setComputePipelineState()");
  if (!state) violate("setComputePipelineState(): no pipeline");
  if (state_->pipeline == state) return;
  state_->pipeline = state;
  keep(l, command_buffer_, Access::kernel(state));
}

void ComputeCommandEncoder::setBuffer(const Buffer* buffer, NS::UInteger offset, NS::UInteger index) {
  CommandList& l = list("setBuffer()");
  if (index >= kBufferSlots) violate("setBuffer(): index " + std::to_string(index) + " is over the limit of 30");
  ComputeState::Slot& slot = state_->slots[index];
  if (buffer && offset >= buffer->length()) check_range("setBuffer()", buffer, offset, 1);
  if (buffer && slot.buffer != buffer) keep(l, command_buffer_, Access::memory(buffer));
  slot = {buffer, offset, 0, false};
}
void ComputeCommandEncoder::setBufferOffset(NS::UInteger offset, NS::UInteger index) {
  if (index >= kBufferSlots || !state_->slots[index].buffer) {
    violate("setBufferOffset(): no buffer at index " + std::to_string(index));
  }
  setBuffer(state_->slots[index].buffer, offset, index);
}
void ComputeCommandEncoder::setBuffers(const Buffer* const buffers[], const NS::UInteger offsets[], NS::Range range) {
  for (NS::UInteger i = 0; i < range.length; ++i) setBuffer(buffers[i], offsets[i], range.location + i);
}
void ComputeCommandEncoder::setBytes(const void* bytes, NS::UInteger length, NS::UInteger index) {
  CommandList& l = list("setBytes()");
  if (index >= kBufferSlots) violate("setBytes(): index " + std::to_string(index) + " is over the limit of 30");
  if (length == 0 || length > kMaxInlineBytes) {
    violate("setBytes(): " + bytes_text(length) + " at index " + std::to_string(index) +
            ", between 1 and 4096 are allowed");
  }
  const size_t at = (l.inline_bytes.size() + 15) / 16 * 16;
  l.inline_bytes.resize(at + length);
  std::memcpy(l.inline_bytes.data() + at, bytes, length);
  state_->slots[index] = {nullptr, at, length, true};
}
void ComputeCommandEncoder::setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index) {
  list("setThreadgroupMemoryLength()");
  if (index >= kThreadgroupSlots) violate("setThreadgroupMemoryLength(): index over the limit of 30");
  if (length % 16) violate("setThreadgroupMemoryLength(): " + bytes_text(length) + ", must be a multiple of 16");
  state_->threadgroup_bytes[index] = static_cast<uint32_t>(length);
}

void ComputeCommandEncoder::dispatchThreadgroups(Size groups, Size threads) {
  dispatch("dispatchThreadgroups()", false, groups, threads, nullptr, 0);
}
void ComputeCommandEncoder::dispatchThreadgroups(const Buffer* indirect, NS::UInteger offset, Size threads) {
  dispatch("dispatchThreadgroups()", false, Size(1, 1, 1), threads, indirect, offset);
}
void ComputeCommandEncoder::dispatchThreads(Size grid, Size threads) {
  dispatch("dispatchThreads()", true, grid, threads, nullptr, 0);
}

void ComputeCommandEncoder::dispatch(const char* call, bool by_threads, Size grid, Size group, const Buffer* indirect,
                                     NS::UInteger offset) {
  CommandList& l = list(call);
  const ComputePipelineState* pipeline = state_->pipeline;
  if (!pipeline) violate(std::string(call) + ": no pipeline is set");
  Kernel& kernel = *Access::kernel(pipeline);
  auto complain = [&](const std::string& message) { violate("kernel " + kernel.name + ": " + message); };
  const NS::UInteger threads = group.width * group.height * group.depth;
  if (threads == 0 || threads > pipeline->maxTotalThreadsPerThreadgroup()) {
    complain("a threadgroup of " + std::to_string(threads) + " threads, between 1 and " +
             std::to_string(pipeline->maxTotalThreadsPerThreadgroup()) + " are allowed");
  }
  if (Access::multiple_of_width(pipeline) && threads % 32) {
    complain("a threadgroup of " + std::to_string(threads) + " threads, the pipeline promises a multiple of 32");
  }
  constexpr NS::UInteger kMaxGrid = 0xffffffffu;
  if (grid.width > kMaxGrid || grid.height > kMaxGrid || grid.depth > kMaxGrid) complain("the grid is too large");

  DispatchCommand c;
  c.kernel = &kernel;
  c.by_threads = by_threads;
  c.grid = {static_cast<uint32_t>(grid.width), static_cast<uint32_t>(grid.height), static_cast<uint32_t>(grid.depth)};
  c.group = {static_cast<uint32_t>(group.width), static_cast<uint32_t>(group.height),
             static_cast<uint32_t>(group.depth)};
  if (indirect) {
    check_range(call, indirect, offset, sizeof(DispatchThreadgroupsIndirectArguments));
    if (offset % 4) complain("the indirect arguments' offset must be a multiple of 4");
    c.indirect = memory_of(indirect);
    c.indirect_offset = offset;
    keep(l, command_buffer_, Access::memory(indirect));
  }
  c.first_binding = static_cast<uint32_t>(l.bindings.size());
  size_t threadgroup_bytes = kernel.static_threadgroup_bytes;
  for (const ArgumentInfo& a : kernel.arguments) {
    if (a.threadgroup) {
      const uint32_t bytes = state_->threadgroup_bytes[a.index];
      if (bytes < a.bytes)
        complain("threadgroup argument " + a.name + " at index " + std::to_string(a.index) + " has no memory");
      if (c.threadgroup_count == c.threadgroup_bytes.size()) complain("more than 4 threadgroup arguments");
      c.threadgroup_bytes[c.threadgroup_count++] = {a.index, bytes};
      threadgroup_bytes += bytes;
      continue;
    }
    const ComputeState::Slot& slot = state_->slots[a.index];
    auto argument = [&] { return "buffer " + a.name + " at index " + std::to_string(a.index); };
    Binding b;
    b.index = a.index;
    b.offset = slot.offset;
    size_t available = slot.byte_count;
    if (slot.buffer) {
      b.memory = memory_of(slot.buffer);
      available = b.memory->length - slot.offset;
    } else if (slot.is_bytes) {
      b.byte_count = slot.byte_count;
      if (a.writable) complain(argument() + " is written by the kernel, setBytes() gives it constant bytes");
    } else {
      complain(argument() + " is not set");
    }
    if (available < a.bytes)
      complain(argument() + " holds " + bytes_text(available) + ", one element takes " + bytes_text(a.bytes));
    if (slot.buffer && slot.offset % a.alignment) {
      complain(argument() + ": offset " + std::to_string(slot.offset) + " is not a multiple of " +
               std::to_string(a.alignment));
    }
    l.bindings.push_back(b);
    ++c.binding_count;
  }
  if (threadgroup_bytes > kernel.max_threadgroup_bytes) {
    complain(bytes_text(threadgroup_bytes) + " of threadgroup memory, the limit is " +
             std::to_string(kernel.max_threadgroup_bytes));
  }
  if (state_->resources_changed) {
    state_->first_resource = static_cast<uint32_t>(l.resources.size());
    l.resources.insert(l.resources.end(), state_->resources.begin(), state_->resources.end());
    state_->resources_changed = false;
  }
  c.first_resource = state_->first_resource;
  c.resource_count = static_cast<uint32_t>(state_->resources.size());
  l.commands.emplace_back(c);
  audit::dispatch();
}

void ComputeCommandEncoder::memoryBarrier(BarrierScope scope) {
  CommandList& l = list("memoryBarrier()");
  if (!(scope & BarrierScopeBuffers)) return;
  l.commands.emplace_back(BarrierCommand{});
  audit::barrier();
}
void ComputeCommandEncoder::memoryBarrier(const Resource* const resources[], NS::UInteger count) {
  CommandList& l = list("memoryBarrier()");
  BarrierCommand c{static_cast<uint32_t>(l.resources.size()), static_cast<uint32_t>(count), false};
  for (NS::UInteger i = 0; i < count; ++i) l.resources.push_back(memory_of(resources[i]));
  l.commands.emplace_back(c);
  audit::barrier();
}
void ComputeCommandEncoder::updateFence(const Fence* fence) {
  list("updateFence()").commands.emplace_back(FenceCommand{fence, true});
}
void ComputeCommandEncoder::waitForFence(const Fence* fence) {
  list("waitForFence()").commands.emplace_back(FenceCommand{fence, false});
}
void ComputeCommandEncoder::useResource(const Resource* resource, ResourceUsage) {
  CommandList& l = list("useResource()");
  keep(l, command_buffer_, Access::memory(resource));
  state_->resources.push_back(memory_of(resource));
  state_->resources_changed = true;
}
void ComputeCommandEncoder::useResources(const Resource* const resources[], NS::UInteger count, ResourceUsage usage) {
  for (NS::UInteger i = 0; i < count; ++i) useResource(resources[i], usage);
}

void BlitCommandEncoder::copyFromBuffer(const Buffer* source, NS::UInteger source_offset, const Buffer* destination,
                                        NS::UInteger destination_offset, NS::UInteger size) {
  CommandList& l = list("copyFromBuffer()");
  check_range("copyFromBuffer() source", source, source_offset, size);
  check_range("copyFromBuffer() destination", destination, destination_offset, size);
  if (source_offset % 4 || destination_offset % 4 || size % 4) {
    violate("copyFromBuffer(): offsets and size must be multiples of 4 on macOS");
  }
  if (source == destination && source_offset < destination_offset + size && destination_offset < source_offset + size) {
    violate("copyFromBuffer(): source and destination overlap");
  }
  keep(l, command_buffer_, Access::memory(source));
  keep(l, command_buffer_, Access::memory(destination));
  l.commands.emplace_back(
      CopyCommand{memory_of(source), source_offset, memory_of(destination), destination_offset, size});
  audit::copy();
}
void BlitCommandEncoder::fillBuffer(const Buffer* buffer, NS::Range range, uint8_t value) {
  CommandList& l = list("fillBuffer()");
  check_range("fillBuffer()", buffer, range.location, range.length);
  if (range.location % 4 || range.length % 4) violate("fillBuffer(): the range must be a multiple of 4 on macOS");
  keep(l, command_buffer_, Access::memory(buffer));
  l.commands.emplace_back(FillCommand{memory_of(buffer), range.location, range.length, value});
  audit::copy();
}
void BlitCommandEncoder::synchronizeResource(const Resource*) {
  audit::poll("synchronizeResource()");
  violate("synchronizeResource() is for managed resources, which do not exist on Apple silicon");
}
void BlitCommandEncoder::updateFence(const Fence* fence) {
  list("updateFence()").commands.emplace_back(FenceCommand{fence, true});
}
void BlitCommandEncoder::waitForFence(const Fence* fence) {
  list("waitForFence()").commands.emplace_back(FenceCommand{fence, false});
}

}  // namespace MTL
