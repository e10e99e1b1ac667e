// From a kernel's signature to a function that runs one thread. The translator names only where each argument comes
// from; its type is recovered from the function itself.
#pragma once

#include "sm/arguments.h"
#include "sm/runtime.h"
#include "sm/vector.h"

namespace sm {

template <abi::ArgumentKind Kind, uint Index = 0, bool Enabled = true>
struct From {};

template <class T>
SM_INLINE T to_position(abi::Uint3 v) {
  if constexpr (metal::components<T> == 3) {
    return T(v.x, v.y, v.z);
  } else if constexpr (metal::components<T> == 2) {
    return T(v.x, v.y);
  } else {
    return (T)v.x;
  }
}

template <class T>
struct Pointee {
  using type = T;
  static SM_INLINE T at(void* p) { return (T)p; }
};
template <class T>
struct Pointee<T*> {
  using type = T;
  static SM_INLINE T* at(void* p) { return (T*)p; }
};
template <class T>
struct Pointee<T&> {
  using type = T;
  static SM_INLINE T& at(void* p) { return *(T*)p; }
};

template <class P, abi::ArgumentKind Kind, uint Index, bool Enabled>
SM_INLINE decltype(auto) fetch(const abi::ThreadContext* c, From<Kind, Index, Enabled>) {
  const abi::GroupContext* g = c->group;
  using abi::ArgumentKind;
  if constexpr (Kind == abi::kBuffer) {
    return Pointee<P>::at(Enabled ? g->buffers[Index] : nullptr);
  } else if constexpr (Kind == abi::kThreadgroup) {
    return Pointee<P>::at(g->threadgroup_arguments[Index]);
  } else if constexpr (Kind == abi::kThreadPositionInThreadgroup) {
    return to_position<P>(c->position);
  } else if constexpr (Kind == abi::kThreadgroupPositionInGrid) {
    return to_position<P>(g->position);
  } else if constexpr (Kind == abi::kThreadPositionInGrid) {
    return to_position<P>({g->position.x * g->nominal_size.x + c->position.x,
                           g->position.y * g->nominal_size.y + c->position.y,
                           g->position.z * g->nominal_size.z + c->position.z});
  } else if constexpr (Kind == abi::kThreadsPerThreadgroup) {
    return to_position<P>(g->size);
  } else if constexpr (Kind == abi::kDispatchThreadsPerThreadgroup) {
    return to_position<P>(g->nominal_size);
  } else if constexpr (Kind == abi::kThreadgroupsPerGrid) {
    return to_position<P>(g->groups);
  } else if constexpr (Kind == abi::kThreadsPerGrid) {
    return to_position<P>(g->grid);
  } else if constexpr (Kind == abi::kThreadIndexInThreadgroup) {
    return (P)c->index;
  } else if constexpr (Kind == abi::kThreadIndexInSimdgroup) {
    return (P)c->lane;
  } else if constexpr (Kind == abi::kSimdgroupIndexInThreadgroup) {
    return (P)c->simdgroup;
  } else if constexpr (Kind == abi::kSimdgroupsPerThreadgroup) {
    return (P)g->simdgroups;
  } else {
    return (P)abi::kSimdWidth;
  }
}

template <class P, abi::ArgumentKind Kind, uint Index, bool Enabled>
constexpr abi::Argument describe(From<Kind, Index, Enabled>, const char* name) {
  if constexpr (Kind == abi::kBuffer || Kind == abi::kThreadgroup) {
    using T = typename Pointee<P>::type;
    return {Kind, Index, name, size_of<T>, align_of<T>, Enabled, !__is_const(T)};
  } else {
    return {Kind, 0, name, 0, 1, true, false};
  }
}

template <auto Function, class... Sources>
struct Entry;
template <class... P, void (*Function)(P...), class... Sources>
struct Entry<Function, Sources...> {
  static_assert(sizeof...(P) == sizeof...(Sources));
  __attribute__((no_sanitize("thread", "kernel-address"))) static void run() {
    const abi::ThreadContext* c = self();
    Function(fetch<P>(c, Sources{})...);
  }
  template <class... Names>
  struct Arguments {
    abi::Argument list[sizeof...(P) + 1];
    constexpr Arguments(Names... names) : list{describe<P>(Sources{}, names)..., {}} {}
  };
  template <class... Names>
  static constexpr Arguments<Names...> arguments(Names... names) {
    return Arguments<Names...>(names...);
  }
};

// Variables in threadgroup memory: each declaration in each instantiation of a kernel has its own offset, given out
// when the module is loaded.
__attribute__((visibility("hidden"))) inline uint threadgroup_bytes = 0;
#ifdef SM_SANITIZED
inline constexpr uint kRedzone = 64;
#else
inline constexpr uint kRedzone = 0;
#endif
inline uint reserve(uint bytes, uint alignment) {
  if (alignment < 16) alignment = 16;
  uint at = (threadgroup_bytes + alignment - 1) / alignment * alignment;
  threadgroup_bytes = at + bytes + kRedzone;
  return at;
}
template <class Tag, class T>
__attribute__((visibility("hidden"))) inline const uint threadgroup_offset = reserve(sizeof(T), alignof(T));
template <class Tag, class T>
SM_INLINE T& threadgroup_variable() {
  return *(T*)(self()->group->threadgroup_memory + threadgroup_offset<Tag, T>);
}

}  // namespace sm
