// The Metal standard library as the address-space lint sees it: parsed, never compiled, as "C++ for OpenCL", where
// device, threadgroup, constant and thread are real address spaces and mixing them is an error, as it is with Apple's
// compiler.
#pragma once

#define SM_LINT 1
#include "sm/integer.h"
#include "sm/math.h"

#define device __global
#define threadgroup __local
#define constant __constant
#define thread __private

namespace metal {

enum class mem_flags : uint { mem_none, mem_device, mem_threadgroup, mem_texture, mem_threadgroup_imageblock };
mem_flags operator|(mem_flags a, mem_flags b);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define SM_LINT_1(name) \
  template <class T>    \
  T name(T value);
SM_LINT_1(simd_sum)
SM_LINT_1(simd_product)
SM_LINT_1(simd_max)
SM_LINT_1(simd_min)
SM_LINT_1(simd_and)
SM_LINT_1(simd_or)
SM_LINT_1(simd_xor)
SM_LINT_1(simd_broadcast_first)
SM_LINT_1(simd_prefix_inclusive_sum)
SM_LINT_1(simd_prefix_exclusive_sum)
SM_LINT_1(simd_prefix_inclusive_product)
SM_LINT_1(simd_prefix_exclusive_product)
SM_LINT_1(quad_sum)
#define SM_LINT_2(name) \
  template <class T>    \
  T name(T value, ushort operand);
SM_LINT_2(simd_shuffle)
SM_LINT_2(simd_broadcast)
SM_LINT_2(simd_shuffle_xor)
SM_LINT_2(simd_shuffle_down)
SM_LINT_2(simd_shuffle_up)
SM_LINT_2(simd_shuffle_rotate_down)
SM_LINT_2(simd_shuffle_rotate_up)
SM_LINT_2(quad_shuffle)
SM_LINT_2(quad_broadcast)
SM_LINT_2(quad_shuffle_xor)
SM_LINT_2(quad_shuffle_down)
SM_LINT_2(quad_shuffle_up)
template <class T>
T simd_shuffle_and_fill_down(T value, T fill, ushort k);
template <class T>
T simd_shuffle_and_fill_up(T value, T fill, ushort k);
struct simd_vote {
  typedef ulong vote_t;
  explicit simd_vote(vote_t);
  explicit operator vote_t() const;
  bool all() const;
  bool any() const;
};
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool simd_any(bool);
bool simd_all(bool);
bool simd_is_first();

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  vec<T, 2> e;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal);
  thread vec<T, 2>& thread_elements() thread;
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int Columns, int Rows>
simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(type_identity_t<T> value);
#define SM_LINT_MATRIX(space)                                                                                 \
  template <class T>                                                                                          \
  void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& m, const space T* from, ulong stride = 8,             \
                      ulong2 origin = ulong2(0), bool transpose = false);                                     \
  template <class T>                                                                                          \
  void simdgroup_store(simdgroup_matrix<T, 8, 8> m, space T* to, ulong stride = 8, ulong2 origin = ulong2(0), \
                       bool transpose = false);
SM_LINT_MATRIX(device)
SM_LINT_MATRIX(threadgroup)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                   simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b);

enum memory_order { memory_order_relaxed };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
template <class T>
struct atomic {
  T value;
};
typedef atomic<int> sm_atomic_int;
typedef atomic<uint> sm_atomic_uint;
typedef atomic<bool> sm_atomic_bool;
typedef atomic<float> sm_atomic_float;
typedef atomic<ulong> sm_atomic_ulong;
// OpenCL has types of these names.
#define atomic_int sm_atomic_int
#define atomic_uint sm_atomic_uint
#define atomic_bool sm_atomic_bool
#define atomic_float sm_atomic_float
#define atomic_ulong sm_atomic_ulong
#define SM_LINT_ATOMIC(space)                                                                                       \
  template <class T>                                                                                                \
  T atomic_load_explicit(const volatile space atomic<T>* p, memory_order);                                          \
  template <class T>                                                                                                \
  void atomic_store_explicit(volatile space atomic<T>* p, type_identity_t<T> v, memory_order);                      \
  template <class T>                                                                                                \
  T atomic_exchange_explicit(volatile space atomic<T>* p, type_identity_t<T> v, memory_order);                      \
  template <class T>                                                                                                \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>* p, thread T* expected, type_identity_t<T> v, \
                                             memory_order, memory_order);                                           \
  SM_LINT_FETCH(space, add)                                                                                         \
  SM_LINT_FETCH(space, sub)                                                                                         \
  SM_LINT_FETCH(space, and)                                                                                         \
  SM_LINT_FETCH(space, or)                                                                                          \
  SM_LINT_FETCH(space, xor)                                                                                         \
  SM_LINT_FETCH(space, min)                                                                                         \
  SM_LINT_FETCH(space, max)
#define SM_LINT_FETCH(space, name) \
  template <class T>               \
  T atomic_fetch_##name##_explicit(volatile space atomic<T>* p, type_identity_t<T> v, memory_order);
SM_LINT_ATOMIC(device)
SM_LINT_ATOMIC(threadgroup)
void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device);

}  // namespace metal

namespace sm {

template <class T>
threadgroup T& threadgroup_variable();
template <class T>
void use(T);

}  // namespace sm

#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable

// Words of OpenCL that are names like any other in Metal.
#define local sm_local
#define global sm_global
#define generic sm_generic
#define pipe sm_pipe
