// A simdgroup is a warp, a threadgroup a block. Words of the compiler only: no header of the CUDA toolkit is needed.
#pragma once

#include "sm/abi.h"
#include "sm/mem_flags.h"
#include "sm/types.h"

#define SM_COLLECTIVE __attribute__((convergent)) SM_INLINE
#define SM_SREG(name, axis) ((uint)__nvvm_read_ptx_sreg_##name##_##axis())

namespace sm {

namespace abi = softmetal::abi;

SM_INLINE uint lane() {
  const uint lane = __nvvm_read_ptx_sreg_laneid();
  __builtin_assume(lane < 32);
  return lane;
}

// Collectives are joined by all lanes of a simdgroup: that is what kernels do, and the CPU executor shows it.
inline constexpr uint kAllLanes = ~0u;

// A grid may start while the one before it ends; nothing may come before that one's results but what the kernel says
// need not wait for them.
SM_INLINE void begin_grid(bool starts_early) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (!starts_early) asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace sm

namespace metal {

SM_COLLECTIVE void threadgroup_barrier(mem_flags) { __syncthreads(); }
SM_COLLECTIVE void simdgroup_barrier(mem_flags) { __nvvm_bar_warp_sync(sm::kAllLanes); }

// What the macro SOFTMETAL_EARLY_START promises: a kernel that is marked [[softmetal_early]] calls this before it
// touches anything another dispatch writes.
SM_INLINE void softmetal_wait_for_dispatches() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What the macro SOFTMETAL_COPIES promises: copies of 16 bytes to threadgroup memory that take no registers on their
// way, a mark behind the last, and a wait for all up to the thread's last mark but `left`, which the compiler knows.
SM_INLINE void softmetal_begin_copy(void* to, const void* from) {
  const uint at = (uint)(ulong)(__attribute__((address_space(3))) void*)to;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
SM_INLINE void softmetal_end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
SM_INLINE void softmetal_wait_for_copies(uint left = 0) {
  if (left == 0) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (left == 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
  if (left == 2) asm volatile("cp.async.wait_group 2;" ::: "memory");
  if (left >= 3) asm volatile("cp.async.wait_group 3;" ::: "memory");
}

}  // namespace metal
