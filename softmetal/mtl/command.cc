#include "softmetal/stream.h"

#include "mtl/state.h"

namespace softmetal {

MTL::CommandBuffer* Access::new_command_buffer(MTL::CommandQueue* queue, bool retained) {
  audit::command_buffer();
  auto* buffer = new MTL::CommandBuffer;
  buffer->queue_ = NS::RetainPtr(queue);
  buffer->retained_ = retained;
  return buffer->autorelease();
}

void encode_call(MTL::CommandBuffer* commands, std::function<void(void* stream)> act) {
  if (!Access::has_list(commands)) violate("encode_call(): the command buffer is committed");
  Access::list(commands).commands.emplace_back(CallCommand{std::move(act)});
}

void run_beside(MTL::BlitCommandEncoder* encoder) {
  auto* begin = std::get_if<EncoderCommand>(&Access::commands(encoder, "run_beside()").commands.back());
  if (begin == nullptr || !begin->begin) violate("run_beside(): the encoder has commands already");
  begin->beside = true;
}

}  // namespace softmetal

using namespace softmetal;

namespace MTL {

CommandQueue::CommandQueue() = default;
CommandQueue::~CommandQueue() = default;
void CommandQueue::setLabel(const NS::String* label) { label_ = owned(label); }
CommandBuffer* CommandQueue::commandBuffer() { return Access::new_command_buffer(this, true); }
CommandBuffer* CommandQueue::commandBuffer(const CommandBufferDescriptor* descriptor) {
  return Access::new_command_buffer(this, descriptor->retainedReferences());
}
CommandBuffer* CommandQueue::commandBufferWithUnretainedReferences() { return Access::new_command_buffer(this, false); }

CommandBufferDescriptor* CommandBufferDescriptor::make_copy() const {
  auto* d = alloc();
  d->retained_ = retained_;
  return d;
}

CommandBuffer::CommandBuffer() : list_(std::make_unique<CommandList>()), state_(std::make_shared<BufferState>()) {}
CommandBuffer::~CommandBuffer() = default;
Device* CommandBuffer::device() const { return queue_->device(); }
void CommandBuffer::setLabel(const NS::String* label) { label_ = owned(label); }

ComputeCommandEncoder* CommandBuffer::computeCommandEncoder() { return computeCommandEncoder(DispatchTypeSerial); }
ComputeCommandEncoder* CommandBuffer::computeCommandEncoder(DispatchType type) {
  if (encoding_) violate("computeCommandEncoder(): the encoder before has not ended");
  if (!list_) violate("computeCommandEncoder(): the command buffer is committed");
  encoding_ = true;
  list_->commands.emplace_back(EncoderCommand{true, type == DispatchTypeConcurrent});
  auto* encoder = Access::make<ComputeCommandEncoder>();
  Access::attach(encoder, this->retain());
  Access::set_type(encoder, type);
  return encoder->autorelease();
}
BlitCommandEncoder* CommandBuffer::blitCommandEncoder() {
  if (encoding_) violate("blitCommandEncoder(): the encoder before has not ended");
  if (!list_) violate("blitCommandEncoder(): the command buffer is committed");
  encoding_ = true;
  list_->commands.emplace_back(EncoderCommand{true, false});
  auto* encoder = Access::make<BlitCommandEncoder>();
  Access::attach(encoder, this->retain());
  return encoder->autorelease();
}

void CommandBuffer::encodeSignalEvent(const Event* event, uint64_t value) {
  if (encoding_) violate("encodeSignalEvent(): an encoder has not ended");
  list_->commands.emplace_back(EventCommand{[state = Access::event(event), value] { state->signal(value); }});
}
void CommandBuffer::encodeWait(const Event* event, uint64_t value) {
  if (encoding_) violate("encodeWait(): an encoder has not ended");
  list_->commands.emplace_back(EventCommand{[state = Access::event(event), value] {
                                              std::unique_lock lock(state->mutex);
                                              state->changed.wait(lock, [&] { return state->value >= value; });
                                            },
                                            true});
}

void CommandBuffer::addScheduledHandler(const HandlerFunction& function) {
  if (!list_) violate("addScheduledHandler(): the command buffer is committed");
  state_->scheduled.push_back(function);
}
void CommandBuffer::addCompletedHandler(const HandlerFunction& function) {
  if (!list_) violate("addCompletedHandler(): the command buffer is committed");
  state_->completed.push_back(function);
}
void CommandBuffer::enqueue() { state_->status = CommandBufferStatusEnqueued; }

void CommandBuffer::commit() {
  audit::commit();
  if (!list_) violate("commit(): the command buffer is committed already");
  if (encoding_) violate("commit(): an encoder has not ended");
  {
    std::lock_guard lock(state_->mutex);
    state_->status = CommandBufferStatusScheduled;
  }
  for (const HandlerFunction& f : state_->scheduled) f(this);
  // The stream keeps the command buffer alive until its handlers have run.
  const bool tell = !state_->completed.empty();
  const auto done = [self = NS::RetainPtr(this)](const Completion& completion) {
    BufferState& state = *self->state_;
    NS::SharedPtr<NS::Error> error;
    if (!completion.error.empty()) {
      auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
      error = NS::RetainPtr(
          NS::Error::make("MTLCommandBufferErrorDomain", CommandBufferErrorInternal, "softmetal: " + completion.error));
    }
    {
      std::lock_guard lock(state.mutex);
      state.completion = completion;
      state.error = error;
      state.status = completion.error.empty() ? CommandBufferStatusCompleted : CommandBufferStatusError;
    }
    for (const HandlerFunction& f : state.completed) f(self.get());
    {
      std::lock_guard lock(state.mutex);
      state.finished = true;
    }
    state.changed.notify_all();
  };
  Access::stream(queue_.get())->submit(std::move(list_), done, tell);
}

void CommandBuffer::waitUntilScheduled() { audit::poll("waitUntilScheduled()"); }

void CommandBuffer::waitUntilCompleted() {
  audit::wait("waitUntilCompleted()");
  if (list_) violate("waitUntilCompleted(): the command buffer is not committed");
  std::unique_lock lock(state_->mutex);
  while (!state_->finished) {
    lock.unlock();
    const bool helped = Access::stream(queue_.get())->complete_one();
    lock.lock();
    if (!helped) state_->changed.wait(lock, [&] { return state_->finished; });
  }
}

CommandBufferStatus CommandBuffer::status() const {
  std::lock_guard lock(state_->mutex);
  // Asking once it is over is no polling.
  if (state_->status < CommandBufferStatusCompleted) audit::poll("status()");
  return state_->status;
}
NS::Error* CommandBuffer::error() const {
  std::lock_guard lock(state_->mutex);
  return state_->error.get();
}
CFTimeInterval CommandBuffer::GPUStartTime() const {
  std::lock_guard lock(state_->mutex);
  return state_->completion.start;
}
CFTimeInterval CommandBuffer::GPUEndTime() const {
  std::lock_guard lock(state_->mutex);
  return state_->completion.end;
}

CommandEncoder::CommandEncoder() = default;
CommandEncoder::~CommandEncoder() {
  if (command_buffer_) command_buffer_->release();
}
Device* CommandEncoder::device() const { return command_buffer_->device(); }
void CommandEncoder::setLabel(const NS::String* label) { label_ = owned(label); }
CommandList& CommandEncoder::list(const char* call) const {
  if (ended_) violate(std::string(call) + ": the encoder has ended");
  return Access::list(command_buffer_);
}
void CommandEncoder::endEncoding() {
  list("endEncoding()").commands.emplace_back(EncoderCommand{false, false});
  ended_ = true;
  Access::end_encoder(command_buffer_);
}

}  // namespace MTL
