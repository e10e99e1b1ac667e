// One CPU thread's share of a dispatch: runs the threads of a threadgroup as fibers, and joins them at barriers and at
// the operations of a simdgroup.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/fiber.h"
#include "sm/abi.h"

namespace softmetal {

class Tracker;

// A dispatch as the workers see it.
struct Launch {
  const abi::Module* module = nullptr;
  abi::Uint3 groups, group_size, grid;
  void* buffers[32] = {};
  uint32_t threadgroup_bytes[32] = {};  // dynamic, by index
  uint64_t seed = 0;
  bool poison = false;         // fill threadgroup memory with the NaN pattern
  Tracker* tracker = nullptr;  // strict and counting modes
};

class Worker {
 public:
  Worker();
  ~Worker();

  // Runs the threadgroup with this linear index. Returns false after an error; `error()` tells it.
  bool run(const Launch& launch, uint64_t group);
  const std::string& error() const { return error_; }

  // From one of its threads: tells what is wrong, then ends the threadgroup. Stacks are left as they are, so nothing on
  // them may own memory when leave() is called.
  void set_error(const std::string& message);
  [[noreturn]] void leave();

  const Launch& launch() const { return *launch_; }
  unsigned current_thread() const { return current_; }
  const Stacks& stacks() const { return stacks_; }
  const char* threadgroup_memory() const { return arena_; }
  size_t threadgroup_extent() const { return arena_used_; }

  static const abi::Runtime kRuntime;

 private:
  enum class State : uint8_t { unstarted, ready, running, in_collective, at_barrier, done };
  struct Thread {
    State state;
    uint16_t slot;  // its stack, once started
    abi::Site site;
    abi::Combine combine;
    void* stack_pointer;
#if defined(SOFTMETAL_TSAN)
    void* tsan;
#endif
  };
  struct Simdgroup {
    uint32_t live, unstarted, ready, waiting;
    bool mixed;  // lanes wait at different places
    abi::Site site;
    abi::Combine combine;
    void* args[32];
  };

  static Worker* self();
  static void fiber_main();
  static void on_threadgroup_barrier(unsigned flags, abi::Site site);
  static void on_simdgroup_barrier(unsigned flags, abi::Site site);
  static void on_collective(void* arg, abi::Combine combine, abi::Site site);
  static void on_load(const void* address, unsigned long bytes, const void* pc);
  static void on_store(const void* address, unsigned long bytes, const void* pc);
  static void on_atomic(const void* address, unsigned long bytes, unsigned kind, const void* pc);

  void barrier(abi::Site site);
  void collective(void* arg, abi::Combine combine, abi::Site site);
  void fire(Simdgroup& s, uint32_t mask, abi::Combine combine);
  void release_barrier();
  // The next thread to run, preferring those of `simdgroup`; -1 when all are done.
  int pick(unsigned simdgroup);
  bool resolve();
  bool check_barrier();
  void set_up_arena();
  unsigned random_bit(uint32_t mask);
  // Leaves thread `from` (or the caller of run, -1) for thread `to` (or that caller, -1).
  void switch_to(int from, int to);
  void prepare_context(unsigned thread, unsigned slot);

  Stacks stacks_;
  abi::GroupContext group_{};
  const Launch* launch_ = nullptr;
  unsigned thread_count_ = 0, live_ = 0, at_barrier_ = 0, current_ = 0;
  uint32_t runnable_ = 0;  // simdgroups with a thread that can run
  Thread threads_[1024];
  Simdgroup simdgroups_[32];
  uint16_t free_slots_[1024];
  unsigned free_count_ = 0;
  void* main_stack_pointer_ = nullptr;
  uint64_t random_ = 0;
  char* arena_ = nullptr;  // threadgroup memory: the kernel's own variables, then the arguments
  size_t arena_used_ = 0;
  void* threadgroup_arguments_[32] = {};
  std::string error_;
#if defined(SOFTMETAL_TSAN)
  void* tsan_main_ = nullptr;
  char tsan_group_ = 0, tsan_simdgroup_[32] = {};
#endif
#if defined(SOFTMETAL_ASAN)
  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
#endif
};

}  // namespace softmetal
