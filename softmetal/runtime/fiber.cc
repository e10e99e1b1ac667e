#include "runtime/fiber.h"

#include <sys/mman.h>

#include <new>

#if defined(SOFTMETAL_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#if defined(__x86_64__)
asm(R"(
.text
.globl softmetal_switch
.type softmetal_switch,@function
softmetal_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size softmetal_switch,.-softmetal_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl softmetal_switch
.type softmetal_switch,%function
softmetal_switch:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  ret
.size softmetal_switch,.-softmetal_switch
)");
#else
#error "softmetal runs on x86-64 and aarch64"
#endif

namespace softmetal {

Stacks::Stacks(size_t count) : count_(count) {
  mapping_bytes_ = (count + 1) * abi::kStackBytes;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  base_ = (reinterpret_cast<uintptr_t>(mapping_) + abi::kStackBytes - 1) & ~(abi::kStackBytes - 1);
  // A thread that runs out of stack faults instead of writing over its neighbour.
  for (size_t i = 0; i < count; ++i) mprotect(lowest(i), 4096, PROT_NONE);
}

Stacks::~Stacks() { munmap(mapping_, mapping_bytes_); }

void* Stacks::prepare(size_t index, void (*main)()) {
#if defined(SOFTMETAL_ASAN)
  // A thread that was abandoned has left its frames poisoned.
  __asan_unpoison_memory_region(reinterpret_cast<char*>(lowest(index)) + 4096, abi::kStackBytes - 4096);
#endif
  const uintptr_t top = address(index) + abi::kStackBytes - abi::kContextPage - abi::stack_color(address(index)) * 112;
  auto* sp = reinterpret_cast<void**>(top & ~uintptr_t{15});
#if defined(__x86_64__)
  *--sp = nullptr;  // where a return address would be, so that the entry sees an aligned stack
  *--sp = reinterpret_cast<void*>(main);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
#else
  sp -= 20;
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[11] = reinterpret_cast<void*>(main);
#endif
  return sp;
}

}  // namespace softmetal
