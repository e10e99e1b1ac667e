// Stacks for the threads of a threadgroup, and the switch between them. The build defines SOFTMETAL_ASAN or
// SOFTMETAL_TSAN where kernels are compiled with a sanitizer; the scheduler itself is compiled without, since it moves
// between stacks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm/abi.h"

namespace softmetal {

// Saves the callee's registers on the current stack, its pointer in *save, and continues where `load` was saved.
extern "C" void softmetal_switch(void** save, void* load);

class Stacks {
 public:
  explicit Stacks(size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // The stack pointer from which softmetal_switch enters `main`, which must not return.
  void* prepare(size_t index, void (*main)());
  abi::ThreadContext* context(size_t index) const {
    return reinterpret_cast<abi::ThreadContext*>(abi::context_address(address(index)));
  }
  void* lowest(size_t index) const { return reinterpret_cast<void*>(address(index)); }
  bool contains(const void* p) const {
    const auto a = reinterpret_cast<uintptr_t>(p);
    return a >= base_ && a < base_ + count_ * abi::kStackBytes;
  }

 private:
  uintptr_t address(size_t index) const { return base_ + index * abi::kStackBytes; }
  void* mapping_;
  size_t mapping_bytes_;
  uintptr_t base_;
  size_t count_;
};

}  // namespace softmetal
