// From a kernel's signature to the parameters of a grid: a pointer stays one; a reference travels by value on an NVIDIA
// GPU, so that its fields are read from the bank of constants, and as a pointer to constant memory on Apple's, where
// the compiler brings such fields to uniform registers. Types are recovered from the function, as for the CPU.
#pragma once

#include "sm/arguments.h"
#include "sm/vector.h"
#ifdef SM_AGX
#include "sm/agx/runtime.h"
// As large as the dispatches ask for, which the report says.
static __attribute__((__shared__, aligned(16))) char softmetal_threadgroup_memory[SM_THREADGROUP_BYTES];
#else
#include "sm/cuda/runtime.h"
extern "C" __attribute__((__shared__, aligned(16))) char softmetal_threadgroup_memory[];
#endif

namespace sm {

SM_INLINE uint thread_index() {
  return SM_SREG(tid, x) + SM_SREG(ntid, x) * (SM_SREG(tid, y) + SM_SREG(ntid, y) * SM_SREG(tid, z));
}

template <uint I, class P, class... R>
struct Nth {
  using type = typename Nth<I - 1, R...>::type;
};
template <class P, class... R>
struct Nth<0, P, R...> {
  using type = P;
};
template <auto Function>
struct Signature;
template <class... P, void (*Function)(P...)>
struct Signature<Function> {
  template <uint I>
  using at = typename Nth<I, P...>::type;
};

template <class T>
struct Argument {};
template <class T>
struct Argument<T*> {
  using pointee = T;
  using passed = T*;
  static constexpr bool by_value = false;
  static SM_INLINE T* give(T* p) { return p; }
};
template <class T>
struct Argument<T&> {
  using pointee = T;
#ifdef SM_AGX
  using passed = T __attribute__((address_space(4)))*;
  static constexpr bool by_value = false;
  static SM_INLINE T& give(passed p) { return *(T*)p; }
#else
  using passed = __remove_cv(T);
  static constexpr bool by_value = true;
  static SM_INLINE T& give(passed& v) { return v; }
#endif
};
template <auto Function, uint I>
using ArgumentOf = Argument<typename Signature<Function>::template at<I>>;
// What the grid is given for parameter I, a buffer.
template <auto Function, uint I>
using Passed = typename ArgumentOf<Function, I>::passed;

template <auto Function, uint I>
SM_INLINE decltype(auto) threadgroup_argument(uint offset) {
  return (typename Signature<Function>::template at<I>)(softmetal_threadgroup_memory + offset);
}

template <class T>
SM_INLINE T to_position(uint x, uint y, uint z) {
  if constexpr (metal::components<T> == 3) {
    return T(x, y, z);
  } else if constexpr (metal::components<T> == 2) {
    return T(x, y);
  } else {
    return (T)x;
  }
}

template <auto Function, uint I, abi::ArgumentKind Kind>
SM_INLINE auto position() {
  using P = typename Signature<Function>::template at<I>;
  if constexpr (Kind == abi::kThreadPositionInThreadgroup) {
    return to_position<P>(SM_SREG(tid, x), SM_SREG(tid, y), SM_SREG(tid, z));
  } else if constexpr (Kind == abi::kThreadgroupPositionInGrid) {
    return to_position<P>(SM_SREG(ctaid, x), SM_SREG(ctaid, y), SM_SREG(ctaid, z));
  } else if constexpr (Kind == abi::kThreadPositionInGrid) {
    return to_position<P>(SM_SREG(ctaid, x) * SM_SREG(ntid, x) + SM_SREG(tid, x),
                          SM_SREG(ctaid, y) * SM_SREG(ntid, y) + SM_SREG(tid, y),
                          SM_SREG(ctaid, z) * SM_SREG(ntid, z) + SM_SREG(tid, z));
  } else if constexpr (Kind == abi::kThreadsPerThreadgroup || Kind == abi::kDispatchThreadsPerThreadgroup) {
    return to_position<P>(SM_SREG(ntid, x), SM_SREG(ntid, y), SM_SREG(ntid, z));
  } else if constexpr (Kind == abi::kThreadgroupsPerGrid) {
    return to_position<P>(SM_SREG(nctaid, x), SM_SREG(nctaid, y), SM_SREG(nctaid, z));
  } else if constexpr (Kind == abi::kThreadsPerGrid) {
    return to_position<P>(SM_SREG(nctaid, x) * SM_SREG(ntid, x), SM_SREG(nctaid, y) * SM_SREG(ntid, y),
                          SM_SREG(nctaid, z) * SM_SREG(ntid, z));
  } else if constexpr (Kind == abi::kThreadIndexInThreadgroup) {
    return (P)thread_index();
  } else if constexpr (Kind == abi::kThreadIndexInSimdgroup) {
    return (P)lane();
  } else if constexpr (Kind == abi::kSimdgroupIndexInThreadgroup) {
    return (P)(thread_index() / 32);
  } else if constexpr (Kind == abi::kSimdgroupsPerThreadgroup) {
    return (P)((SM_SREG(ntid, x) * SM_SREG(ntid, y) * SM_SREG(ntid, z) + 31) / 32);
  } else {
    return (P)abi::kSimdWidth;
  }
}

template <auto Function, uint I, uint Index, bool Enabled>
constexpr abi::GridArgument describe(uint kind) {
  using A = ArgumentOf<Function, I>;
  using T = typename A::pointee;
  return {kind, Index, size_of<T>, align_of<T>, Enabled, !__is_const(T), A::by_value};
}

template <class Tag, class T>
SM_INLINE T& threadgroup_variable() {
  static __attribute__((__shared__, aligned(16))) T variable;
  return variable;
}

}  // namespace sm
