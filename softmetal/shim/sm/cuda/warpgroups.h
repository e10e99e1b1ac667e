// Warpgroups: four simdgroups of compute capability 9.0 that multiply together. Products whose left operand is in
// registers and whose right one lies in threadgroup memory, copies that take no registers on their way, and barriers
// that count arrivals and bytes.
//
// What the macro SOFTMETAL_WARPGROUPS promises to kernels; only those that run on such a GPU see it.
#pragma once

#include "sm/cuda/runtime.h"
#include "sm/vector.h"

namespace metal {

// ---- barriers: 8 bytes of threadgroup memory each, by their address there -------------------------------------------

SM_INLINE uint softmetal_address(const void* p) {
  return (uint)(ulong)(__attribute__((address_space(3))) const void*)p;
}

SM_INLINE void softmetal_barrier_begin(uint barrier, uint count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Behind the last of them, before the others are told by a threadgroup_barrier.
SM_INLINE void softmetal_barriers_begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
SM_INLINE void softmetal_arrive(uint barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and lets the phase wait for so many bytes of softmetal_copy_many.
SM_INLINE void softmetal_arrive_with(uint barrier, uint bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives when this thread's copies by softmetal_copy are there.
SM_INLINE void softmetal_arrive_behind_copies(uint barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity has ended.
SM_INLINE void softmetal_wait(uint barrier, uint parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- copies to threadgroup memory -----------------------------------------------------------------------------------

// 16 bytes of this thread.
SM_INLINE void softmetal_copy(uint to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Any multiple of 16, told to the barrier.
SM_INLINE void softmetal_copy_many(uint to, const void* from, uint bytes, uint barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Before the thread ends.
SM_INLINE void softmetal_finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Until at most `Left` of the thread's groups of copies, the last ones, are under way.
template <uint Left>
SM_INLINE void softmetal_wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
// What this thread stored or copied itself is there for products, once those that begin them know that it came by here.
SM_INLINE void softmetal_show_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- registers ------------------------------------------------------------------------------------------------------

// How many a thread of the warpgroup has from here on: all of its threads come by.
template <uint Count>
SM_COLLECTIVE void softmetal_take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <uint Count>
SM_COLLECTIVE void softmetal_give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

// ---- products -------------------------------------------------------------------------------------------------------

// The right operand: columns of 8 rows by 16 bytes, one after another in 128 bytes, `apart` bytes from one eight of
// columns to the next.
SM_INLINE ulong softmetal_right(uint address, uint apart) {
  return (ulong)(address >> 4 & 0x3fffu) | (ulong)(apart >> 4) << 16 | (ulong)(128 >> 4) << 32;
}
// The same where 16 bytes are eight rows of a column: columns of 16 bytes, eight one after another in 128 bytes and
// those 128 bytes behind one another; `apart` bytes from one eight of rows to the next.
SM_INLINE ulong softmetal_right_turned(uint address, uint apart) {
  return (ulong)(address >> 4 & 0x3fffu) | (ulong)(128 >> 4) << 16 | (ulong)(apart >> 4) << 32;
}
// The operands of products to come, made before softmetal_begin_products(): a compiler would make them between
// products, which then run one by one.
SM_INLINE void softmetal_settle(uint (&a)[4], ulong& b, uint& adds) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+l"(b), "+r"(adds));
}
SM_INLINE void softmetal_settle(ulong& a, ulong& b, uint& adds) { asm volatile("" : "+l"(a), "+l"(b), "+r"(adds)); }
// Registers were written since the last product.
SM_COLLECTIVE void softmetal_begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SM_COLLECTIVE void softmetal_end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `Left` groups of products, the last ones, are under way. Their registers are not to be touched before.
template <uint Left>
SM_COLLECTIVE void softmetal_wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

#define SM_SUMS_8(i)                                                                                            \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SM_SUMS_16(i) SM_SUMS_8(i), SM_SUMS_8(i + 8)
#define SM_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SM_SUMS_32(i) SM_SUMS_16(i), SM_SUMS_16(i + 16)
#define SM_SUMS_64(i) SM_SUMS_32(i), SM_SUMS_32(i + 32)
// Operand numbers behind the sums: four of the left operand, the right one, whether there are sums to add to.
#define SM_PRODUCT(rows, type, list, left, right, more, turned, outputs)                                           \
  asm volatile("{\n.reg .pred more;\nsetp.ne.b32 more, " more                                                      \
               ", 0;\n"                                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" rows "k16.f32." type "." type " {" list "}, {" left "}, " right \
               ", more, 1, 1, " turned ";\n}"                                                                      \
               : outputs                                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds))
#define SM_LIST_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SM_LIST_64                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SM_LIST_128                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// sums [64 outputs, Rows] += a [64, 16] b [16, Rows], from zero where `adds` is 0. Lane l of simdgroup s of the
// warpgroup has outputs 16 s + l / 4 and eight more: a[0] and a[2] columns 2 (l % 4) and that plus 8 of the first, two
// each, a[1] and a[3] those of the second; sums 4 j to 4 j + 3 rows 8 j + 2 (l % 4) and the next of both.
template <uint Rows, bool Half>
SM_COLLECTIVE void softmetal_multiply(float (&sums)[Rows / 2], const uint (&a)[4], ulong b, uint adds) {
  if constexpr (Rows == 16) {
    if constexpr (Half)
      SM_PRODUCT("16", "f16", SM_LIST_16, "%8, %9, %10, %11", "%12", "%13", "0", SM_SUMS_8(0));
    else
      SM_PRODUCT("16", "bf16", SM_LIST_16, "%8, %9, %10, %11", "%12", "%13", "0", SM_SUMS_8(0));
  } else if constexpr (Rows == 32) {
    if constexpr (Half)
      SM_PRODUCT("32", "f16", SM_LIST_32, "%16, %17, %18, %19", "%20", "%21", "0", SM_SUMS_16(0));
    else
      SM_PRODUCT("32", "bf16", SM_LIST_32, "%16, %17, %18, %19", "%20", "%21", "0", SM_SUMS_16(0));
  } else if constexpr (Rows == 64) {
    if constexpr (Half)
      SM_PRODUCT("64", "f16", SM_LIST_64, "%32, %33, %34, %35", "%36", "%37", "0", SM_SUMS_32(0));
    else
      SM_PRODUCT("64", "bf16", SM_LIST_64, "%32, %33, %34, %35", "%36", "%37", "0", SM_SUMS_32(0));
  } else if constexpr (Rows == 128) {
    if constexpr (Half)
      SM_PRODUCT("128", "f16", SM_LIST_128, "%64, %65, %66, %67", "%68", "%69", "0", SM_SUMS_64(0));
    else
      SM_PRODUCT("128", "bf16", SM_LIST_128, "%64, %65, %66, %67", "%68", "%69", "0", SM_SUMS_64(0));
  }
}

// The same with 64 rows whose right operand is softmetal_right_turned's.
template <bool Half>
SM_COLLECTIVE void softmetal_multiply_turned(float (&sums)[32], const uint (&a)[4], ulong b, uint adds) {
  if constexpr (Half)
    SM_PRODUCT("64", "f16", SM_LIST_64, "%32, %33, %34, %35", "%36", "%37", "1", SM_SUMS_32(0));
  else
    SM_PRODUCT("64", "bf16", SM_LIST_64, "%32, %33, %34, %35", "%36", "%37", "1", SM_SUMS_32(0));
}
// The same with 64 rows where both operands lie in threadgroup memory, the left one as softmetal_right has right ones.
template <bool Half>
SM_COLLECTIVE void softmetal_multiply_both(float (&sums)[32], ulong a, ulong b, uint adds) {
#define SM_BOTH(type)                                                             \
  asm volatile(                                                                   \
      "{\n.reg .pred more;\nsetp.ne.b32 more, %34, 0;\n"                          \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" SM_LIST_64 \
      "}, %32, %33, more, "                                                       \
      "1, 1, 0, 0;\n}"                                                            \
      : SM_SUMS_32(0)                                                             \
      : "l"(a), "l"(b), "r"(adds))
  if constexpr (Half)
    SM_BOTH("f16");
  else
    SM_BOTH("bf16");
#undef SM_BOTH
}

#undef SM_SUMS_8
#undef SM_SUMS_16
#undef SM_SUMS_32
#undef SM_SUMS_64
#undef SM_PRODUCT
#undef SM_LIST_16
#undef SM_LIST_32
#undef SM_LIST_64
#undef SM_LIST_128

}  // namespace metal
