// A threadgroup of an Apple GPU in the words of SPIR-V, from which Mesa's compiler makes the GPU's instructions.
// Nothing of this runs: it is made to be counted (docs/metal.md).
#pragma once

#include "sm/abi.h"
#include "sm/mem_flags.h"
#include "sm/types.h"

#define SM_COLLECTIVE __attribute__((convergent)) SM_INLINE

// Names that the translator to SPIR-V knows.
ulong __spirv_BuiltInLocalInvocationId(int axis) __attribute__((const));
ulong __spirv_BuiltInWorkgroupId(int axis) __attribute__((const));
ulong __spirv_BuiltInNumWorkgroups(int axis) __attribute__((const));
uint __spirv_BuiltInSubgroupLocalInvocationId() __attribute__((const));
uint __spirv_BuiltInSubgroupId() __attribute__((const));
__attribute__((convergent)) void __spirv_ControlBarrier(int execution, int memory, int semantics);

namespace sm {

namespace abi = softmetal::abi;

enum class Axis : int { x, y, z };
SM_INLINE uint sreg_tid(Axis a) { return (uint)__spirv_BuiltInLocalInvocationId((int)a); }
SM_INLINE uint sreg_ctaid(Axis a) { return (uint)__spirv_BuiltInWorkgroupId((int)a); }
// What dispatches ask for; the compiler is told with the source.
SM_INLINE constexpr uint sreg_ntid(Axis a) {
  return a == Axis::x ? SM_THREADS_X : a == Axis::y ? SM_THREADS_Y : SM_THREADS_Z;
}
SM_INLINE uint sreg_nctaid(Axis a) { return (uint)__spirv_BuiltInNumWorkgroups((int)a); }
#define SM_SREG(name, axis) ::sm::sreg_##name(::sm::Axis::axis)

SM_INLINE uint lane() {
  const uint lane = __spirv_BuiltInSubgroupLocalInvocationId();
  __builtin_assume(lane < 32);
  return lane;
}

inline constexpr int kThreadgroupScope = 2, kSimdgroupScope = 3;
inline constexpr int kAcquireRelease = 0x8, kThreadgroupMemory = 0x100, kDeviceMemory = 0x200;

}  // namespace sm

namespace metal {

SM_COLLECTIVE void threadgroup_barrier(mem_flags flags) {
  __spirv_ControlBarrier(sm::kThreadgroupScope, sm::kThreadgroupScope,
                         sm::kAcquireRelease | ((uint)flags & 1 ? sm::kDeviceMemory : 0) | sm::kThreadgroupMemory);
}
// Lanes keep step: what is left of it is the order of loads and stores.
SM_COLLECTIVE void simdgroup_barrier(mem_flags) {
  __spirv_ControlBarrier(sm::kSimdgroupScope, sm::kSimdgroupScope, sm::kAcquireRelease | sm::kThreadgroupMemory);
}

}  // namespace metal
