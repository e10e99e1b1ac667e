#include "softmetal/audit.h"

#include "mtl/state.h"

namespace softmetal {
namespace {

// A step belongs to the thread that began it.
struct Step {
  bool active = false, encoding = false;
  int command_buffers = 0, commits = 0, waits = 0;
};
thread_local Step step;

std::atomic<bool> auditing{true};

struct {
  std::atomic<uint64_t> submissions{0}, waits{0}, allocations{0}, compilations{0}, dispatches{0}, barriers{0},
      copies{0};
} counts;

void forbid_in_encoding(const char* call) {
  if (step.encoding && auditing) violate(std::string(call) + " in the encode phase of a step");
}
void forbid_in_step(const char* call) {
  forbid_in_encoding(call);
  if (step.active && auditing) violate(std::string(call) + " in a step");
}

}  // namespace

void violate(const std::string& message) { throw Violation("softmetal: " + message); }

void set_auditing(bool on) { auditing = on; }

void begin_step() {
  if (step.active && auditing) violate("begin_step() in a step: end_step() is missing");
  step = {};
  step.active = true;
}
void begin_encode() {
  if (!step.active && auditing) violate("begin_encode() outside of a step");
  if (step.encoding && auditing) violate("begin_encode() twice");
  step.encoding = true;
}
void end_encode() { step.encoding = false; }
void end_step() { step = {}; }

void host_access(const MTL::Buffer* buffer, size_t offset, size_t bytes, bool writes) {
  const std::string error =
      Access::state(buffer->device()).executor->host_access(*Access::memory(buffer), offset, bytes, writes);
  if (!error.empty() && auditing) violate(error);
}

Counters counters() {
  return {counts.submissions, counts.waits,    counts.allocations, counts.compilations,
          counts.dispatches,  counts.barriers, counts.copies};
}

namespace audit {

void command_buffer() {
  if (step.active && ++step.command_buffers > 1 && auditing) violate("a second command buffer in a step");
}
void commit() {
  forbid_in_encoding("commit()");
  if (step.active && ++step.commits > 1 && auditing) violate("a second commit() in a step");
  ++counts.submissions;
}
void wait(const char* call) {
  forbid_in_encoding(call);
  if (step.active && ++step.waits > 1 && auditing) violate("a second wait in a step: " + std::string(call));
  ++counts.waits;
}
void poll(const char* call) { forbid_in_step(call); }
void readback(const char* call) { forbid_in_encoding(call); }
void allocation(const char* call) {
  forbid_in_encoding(call);
  ++counts.allocations;
}
void compilation(const char* call) {
  forbid_in_encoding(call);
  ++counts.compilations;
}
void dispatch() { ++counts.dispatches; }
void barrier() { ++counts.barriers; }
void copy() { ++counts.copies; }

}  // namespace audit

}  // namespace softmetal
