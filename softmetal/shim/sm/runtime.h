// How a kernel reaches the executor: its own context, barriers, and the call that joins the lanes of a simdgroup.
#pragma once

#include "sm/abi.h"
#include "sm/mem_flags.h"
#include "sm/types.h"

namespace sm {

namespace abi = softmetal::abi;

// Set by the loader before the first thread runs.
extern "C" __attribute__((visibility("hidden"))) inline const abi::Runtime* softmetal_runtime = nullptr;

SM_INLINE abi::ThreadContext* self() {
  return (abi::ThreadContext*)abi::context_address((unsigned long)__builtin_frame_address(0));
}

}  // namespace sm

// Where a collective is called. Passed by value: were call sites told apart by return address, the compiler's copies of
// one call would look like different ones.
#define SM_SITE_PARAMETERS \
  const char *sm_file = __builtin_FILE(), uint sm_line = __builtin_LINE(), uint sm_column = __builtin_COLUMN()
#define SM_SITE (::softmetal::abi::Site{sm_file, sm_line, sm_column})
#define SM_COLLECTIVE __attribute__((noinline, convergent, no_sanitize("thread", "kernel-address")))

namespace metal {

SM_COLLECTIVE inline void threadgroup_barrier(mem_flags flags, SM_SITE_PARAMETERS) {
  sm::softmetal_runtime->threadgroup_barrier((uint)flags, SM_SITE);
}
SM_COLLECTIVE inline void simdgroup_barrier(mem_flags flags, SM_SITE_PARAMETERS) {
  sm::softmetal_runtime->simdgroup_barrier((uint)flags, SM_SITE);
}

}  // namespace metal
