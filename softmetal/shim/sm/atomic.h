#pragma once

#include "sm/integer.h"
#include "sm/math.h"
#if defined(SM_AGX)
#include "sm/agx/runtime.h"
#elif defined(SM_CUDA)
#include "sm/cuda/runtime.h"
#else
#include "sm/runtime.h"
#endif

namespace metal {

enum memory_order { memory_order_relaxed };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

}  // namespace metal

namespace sm {

#ifdef SM_TRACE
#define SM_ATOMIC __attribute__((noinline, no_sanitize("kernel-address")))
#define SM_TELL_ATOMIC(p, kind)                                                                              \
  sm::softmetal_runtime->atomic((const void*)&(p)->value, sizeof((p)->value), softmetal::abi::kAtomic##kind, \
                                __builtin_return_address(0))
#else
#define SM_ATOMIC SM_INLINE
#define SM_TELL_ATOMIC(p, kind) (void)0
#endif

// Any read-modify-write, by compare and exchange: the element may be a float.
template <class T, class F>
SM_INLINE T update(volatile metal::atomic<T>* p, F f) {
  T old, wanted;
  __atomic_load(&p->value, &old, __ATOMIC_RELAXED);
  do {
    wanted = f(old);
  } while (!__atomic_compare_exchange(&p->value, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

}  // namespace sm

namespace metal {

template <class T>
SM_ATOMIC T atomic_load_explicit(const volatile atomic<T>* p, memory_order) {
  SM_TELL_ATOMIC(p, Load);
  T v;
  __atomic_load(&p->value, &v, __ATOMIC_RELAXED);
  return v;
}
template <class T>
SM_ATOMIC void atomic_store_explicit(volatile atomic<T>* p, type_identity_t<T> v, memory_order) {
  SM_TELL_ATOMIC(p, Store);
  __atomic_store(&p->value, &v, __ATOMIC_RELAXED);
}
template <class T>
SM_ATOMIC T atomic_exchange_explicit(volatile atomic<T>* p, type_identity_t<T> v, memory_order) {
  SM_TELL_ATOMIC(p, Update);
  return sm::update(p, [&](T) { return v; });
}
template <class T>
SM_ATOMIC bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* p, T* expected, type_identity_t<T> desired,
                                                     memory_order, memory_order) {
  SM_TELL_ATOMIC(p, Update);
  return __atomic_compare_exchange(&p->value, expected, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#ifdef SM_AGX
// One instruction each.
#define SM_FETCH(name, expression)                                                                        \
  template <class T>                                                                                      \
  SM_ATOMIC T atomic_fetch_##name##_explicit(volatile atomic<T>* p, type_identity_t<T> v, memory_order) { \
    return __atomic_fetch_##name(&p->value, v, __ATOMIC_RELAXED);                                         \
  }
#else
#define SM_FETCH(name, expression)                                                                        \
  template <class T>                                                                                      \
  SM_ATOMIC T atomic_fetch_##name##_explicit(volatile atomic<T>* p, type_identity_t<T> v, memory_order) { \
    SM_TELL_ATOMIC(p, Update);                                                                            \
    return sm::update(p, [&](T old) { return (T)(expression); });                                         \
  }
#endif
SM_FETCH(add, old + v)
SM_FETCH(sub, old - v)
SM_FETCH(and, old& v)
SM_FETCH(or, old | v)
SM_FETCH(xor, old ^ v) SM_FETCH(min, min(old, v)) SM_FETCH(max, max(old, v))

    SM_INLINE void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {}

}  // namespace metal
