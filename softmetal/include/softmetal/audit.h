// The rules of a step, made checkable. Host code brackets its step with these calls; with Apple's Metal they do
// nothing.
//
//   begin_step();      one command buffer and one wait until end_step()
//   begin_encode();    no wait, no commit, no readback, no allocation, no compile until end_encode()
//   ...
//   end_encode();
//   command_buffer->commit();
//   command_buffer->waitUntilCompleted();
//   end_step();
//
// A step and its phases belong to the thread that begins them. A broken rule throws softmetal::Violation from the call
// that breaks it, in strict mode; the counters of softmetal.h count in every mode.
#pragma once

#include <cstddef>

namespace MTL {
class Buffer;
}

namespace softmetal {

#ifdef __APPLE__
inline void begin_step() {}
inline void begin_encode() {}
inline void end_encode() {}
inline void end_step() {}
inline void host_access(const MTL::Buffer*, size_t, size_t, bool) {}
#else
void begin_step();
void begin_encode();
void end_encode();
void end_step();
// A thread of the host is about to read or write a part of a shared buffer while command buffers run: what these have
// done to it must have been signalled to the host by an event, and what they do to it next must wait for another.
void host_access(const MTL::Buffer* buffer, size_t offset, size_t bytes, bool writes);
#endif

// Ends its step when it goes out of scope, also by an exception.
class StepScope {
 public:
  StepScope() { begin_step(); }
  ~StepScope() { end_step(); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
};
class EncodeScope {
 public:
  EncodeScope() { begin_encode(); }
  ~EncodeScope() { end_encode(); }
  EncodeScope(const EncodeScope&) = delete;
  EncodeScope& operator=(const EncodeScope&) = delete;
};

}  // namespace softmetal
