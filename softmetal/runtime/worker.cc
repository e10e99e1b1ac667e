#include "runtime/worker.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "runtime/poison.h"
#include "runtime/tracker.h"

#if defined(SOFTMETAL_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SOFTMETAL_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace softmetal {
namespace {

constexpr size_t kArenaBytes = 1 << 20;  // more than a kernel may use: what is over the limit is told, not overrun

bool same(const abi::Site& a, const abi::Site& b) {
  return a.line == b.line && a.column == b.column && a.file == b.file;
}

std::string where(const abi::Site& site) {
  return site.file ? std::string(" (") + site.file + ":" + std::to_string(site.line) + ")" : "";
}

// A simdgroup_barrier that orders memory: a collective that computes nothing.
void order_memory(void**, unsigned) {}

uint32_t bit(unsigned lane) { return uint32_t{1} << lane; }

}  // namespace

const abi::Runtime Worker::kRuntime = {
    on_threadgroup_barrier, on_simdgroup_barrier, on_collective, on_load, on_store, on_atomic};

Worker::Worker() : stacks_(1024) {
  arena_ = static_cast<char*>(mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (arena_ == MAP_FAILED) throw std::bad_alloc();
  for (unsigned slot = 0; slot < 1024; ++slot) stacks_.context(slot)->worker = this;
#if defined(SOFTMETAL_TSAN)
  for (Thread& t : threads_) t.tsan = nullptr;
#endif
}

Worker::~Worker() {
  munmap(arena_, kArenaBytes);
#if defined(SOFTMETAL_TSAN)
  for (Thread& t : threads_) {
    if (t.tsan) __tsan_destroy_fiber(t.tsan);
  }
#endif
}

Worker* Worker::self() {
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return static_cast<Worker*>(reinterpret_cast<abi::ThreadContext*>(abi::context_address(frame))->worker);
}

void Worker::set_up_arena() {
#if defined(SOFTMETAL_ASAN)
  __asan_unpoison_memory_region(arena_, kArenaBytes);
#endif
  size_t used = *launch_->module->static_threadgroup_bytes;
  for (unsigned i = 0; i < 32; ++i) {
    threadgroup_arguments_[i] = nullptr;
    if (!launch_->threadgroup_bytes[i]) continue;
    used = (used + 15) / 16 * 16;
    threadgroup_arguments_[i] = arena_ + used;
    used += launch_->threadgroup_bytes[i];
  }
  arena_used_ = used;
  if (launch_->poison) fill_poison(arena_, used);
#if defined(SOFTMETAL_ASAN)
  __asan_poison_memory_region(arena_ + (used + 7) / 8 * 8, kArenaBytes - (used + 7) / 8 * 8);
#endif
}

bool Worker::run(const Launch& launch, uint64_t index) {
  launch_ = &launch;
  error_.clear();
  const abi::Uint3& n = launch.groups;
  const abi::Uint3 at = {static_cast<unsigned>(index % n.x), static_cast<unsigned>(index / n.x % n.y),
                         static_cast<unsigned>(index / n.x / n.y)};
  auto edge = [](unsigned grid, unsigned size, unsigned position) {
    const unsigned left = grid - position * size;
    return left < size ? left : size;
  };
  group_.position = at;
  group_.groups = n;
  group_.nominal_size = launch.group_size;
  group_.grid = launch.grid;
  group_.size = {edge(launch.grid.x, launch.group_size.x, at.x), edge(launch.grid.y, launch.group_size.y, at.y),
                 edge(launch.grid.z, launch.group_size.z, at.z)};
  thread_count_ = group_.size.x * group_.size.y * group_.size.z;
  group_.simdgroups = (thread_count_ + 31) / 32;
  group_.buffers = launch.buffers;
  group_.threadgroup_arguments = threadgroup_arguments_;
  group_.threadgroup_memory = arena_;
  set_up_arena();
  if (launch.tracker) launch.tracker->begin_group(*this, index);

  random_ = launch.seed ? (launch.seed * 0x9e3779b97f4a7c15ull) ^ (index + 1) * 0xbf58476d1ce4e5b9ull : 0;
  live_ = thread_count_;
  at_barrier_ = 0;
  runnable_ = 0;
  for (unsigned s = 0; s < group_.simdgroups; ++s) {
    const unsigned left = thread_count_ - s * 32;
    Simdgroup& g = simdgroups_[s];
    g.live = g.unstarted = left >= 32 ? ~uint32_t{0} : bit(left) - 1;
    g.ready = g.waiting = 0;
    runnable_ |= bit(s);
  }
  for (unsigned t = 0; t < thread_count_; ++t) threads_[t].state = State::unstarted;
  free_count_ = 0;
  for (unsigned slot = 1024; slot-- > 0;) free_slots_[free_count_++] = static_cast<uint16_t>(slot);
#if defined(SOFTMETAL_TSAN)
  // All from here: a thread made by another would count as coming after it.
  tsan_main_ = __tsan_get_current_fiber();
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].tsan) __tsan_destroy_fiber(threads_[t].tsan);
    threads_[t].tsan = __tsan_create_fiber(0);
  }
#endif
#if defined(SOFTMETAL_ASAN)
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* lowest = nullptr;
  pthread_attr_getstack(&attributes, &lowest, &main_stack_bytes_);
  main_stack_ = lowest;
  pthread_attr_destroy(&attributes);
#endif
  switch_to(-1, pick(0));
#if defined(SOFTMETAL_TSAN)
  __tsan_acquire(&tsan_group_);
#endif
  return error_.empty();
}

void Worker::prepare_context(unsigned thread, unsigned slot) {
  abi::ThreadContext* c = stacks_.context(slot);
  const abi::Uint3& size = group_.size;
  c->position = {thread % size.x, thread / size.x % size.y, thread / (size.x * size.y)};
  c->index = thread;
  c->lane = thread % 32;
  c->simdgroup = thread / 32;
  c->group = &group_;
  Simdgroup& s = simdgroups_[thread / 32];
  s.unstarted &= ~bit(thread % 32);
  if (!(s.unstarted | s.ready)) runnable_ &= ~bit(thread / 32);
  threads_[thread].state = State::running;
  threads_[thread].slot = static_cast<uint16_t>(slot);
  current_ = thread;
}

void Worker::switch_to(int from, int to) {
  if (to >= 0) {
    Thread& t = threads_[to];
    if (t.state == State::unstarted) {
      const unsigned slot = free_slots_[--free_count_];
      t.stack_pointer = stacks_.prepare(slot, fiber_main);
      prepare_context(static_cast<unsigned>(to), slot);
    } else {
      Simdgroup& s = simdgroups_[to / 32];
      s.ready &= ~bit(static_cast<unsigned>(to) % 32);
      if (!(s.unstarted | s.ready)) runnable_ &= ~bit(static_cast<unsigned>(to) / 32);
      t.state = State::running;
      current_ = static_cast<unsigned>(to);
    }
  }
  if (from == to) return;
  void* ignored;
  void** save = from < 0                              ? &main_stack_pointer_
                : threads_[from].state == State::done ? &ignored
                                                      : &threads_[from].stack_pointer;
  void* load = to < 0 ? main_stack_pointer_ : threads_[to].stack_pointer;
#if defined(SOFTMETAL_ASAN)
  void* fake_stack = nullptr;
  const bool leaving = from >= 0 && (to < 0 || threads_[from].state == State::done);
  __sanitizer_start_switch_fiber(leaving ? nullptr : &fake_stack,
                                 to < 0 ? main_stack_ : stacks_.lowest(threads_[to].slot),
                                 to < 0 ? main_stack_bytes_ : abi::kStackBytes);
#endif
#if defined(SOFTMETAL_TSAN)
  // Threads of a kernel are ordered by their barriers alone, not by the switch between them.
  __tsan_switch_to_fiber(to < 0 ? tsan_main_ : threads_[to].tsan,
                         from >= 0 && to >= 0 ? __tsan_switch_to_fiber_no_sync : 0);
#endif
  softmetal_switch(save, load);
#if defined(SOFTMETAL_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

// Every stack runs this: the thread it was prepared for, then others that have not begun, as long as none waits.
void Worker::fiber_main() {
#if defined(SOFTMETAL_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  Worker* w = self();
  void (*kernel)() = w->launch_->module->run;
  for (;;) {
    kernel();
    const unsigned me = w->current_;
    Thread& t = w->threads_[me];
    Simdgroup& s = w->simdgroups_[me / 32];
    t.state = State::done;
    --w->live_;
    s.live &= ~bit(me % 32);
    // Lanes that wait for this one need not any more.
    if (s.waiting && s.waiting == s.live && !s.mixed) w->fire(s, s.waiting, s.combine);
#if defined(SOFTMETAL_TSAN)
    __tsan_release(&w->tsan_group_);
#endif
    const int next = w->pick(me / 32);
#if !defined( \
    SOFTMETAL_TSAN)  // there each thread has a stack of its own: one after another on one stack would look ordered
    if (next >= 0 && w->threads_[next].state == State::unstarted) {
      w->prepare_context(static_cast<unsigned>(next), t.slot);
      continue;
    }
    w->free_slots_[w->free_count_++] = t.slot;
#endif
    w->switch_to(static_cast<int>(me), next);
  }
}

void Worker::set_error(const std::string& message) {
  if (error_.empty()) error_ = message;
}

void Worker::leave() {
  switch_to(static_cast<int>(current_), -1);
  __builtin_unreachable();
}

unsigned Worker::random_bit(uint32_t mask) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  unsigned skip = static_cast<unsigned>(random_ >> 33) % static_cast<unsigned>(__builtin_popcount(mask));
  while (skip--) mask &= mask - 1;
  return static_cast<unsigned>(__builtin_ctz(mask));
}

int Worker::pick(unsigned simdgroup) {
  for (;;) {
    if (!runnable_) {
      if (!resolve()) return -1;
      continue;
    }
    if (random_) {
      const unsigned s = random_bit(runnable_);
      return static_cast<int>(s * 32 + random_bit(simdgroups_[s].unstarted | simdgroups_[s].ready));
    }
    const unsigned s = runnable_ >> simdgroup & 1 ? simdgroup : static_cast<unsigned>(__builtin_ctz(runnable_));
    return static_cast<int>(s * 32) + __builtin_ctz(simdgroups_[s].unstarted | simdgroups_[s].ready);
  }
}

// Everybody alive waits at a threadgroup_barrier.
bool Worker::check_barrier() {
  const Thread* first = nullptr;
  bool mixed = false;
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].state != State::at_barrier) continue;
    if (!first) first = &threads_[t];
    mixed |= !same(threads_[t].site, first->site);
  }
  const std::string name = std::string("kernel ") + launch_->module->name;
  if (live_ < thread_count_) {
    set_error(name + ": threadgroup_barrier reached by " + std::to_string(at_barrier_) + " of " +
              std::to_string(thread_count_) + " threads, the others have returned" + where(first->site));
    return false;
  }
  if (mixed) {
    set_error(name + ": threads of one threadgroup wait at different threadgroup_barrier calls" + where(first->site));
    return false;
  }
  return true;
}

// Nobody can run. Returns false when all are done; otherwise lets some go on, or fails.
bool Worker::resolve() {
  if (!live_) return false;
  // Part of a simdgroup waits in a collective that the rest will not come to: they are the active lanes. Where lanes
  // wait in several places the first in the text goes first, so that they meet again behind an if or a loop.
  for (unsigned g = 0; g < group_.simdgroups; ++g) {
    Simdgroup& s = simdgroups_[g];
    if (!s.waiting) continue;
    const Thread* threads = threads_ + g * 32;
    auto earlier = [](const abi::Site& a, const abi::Site& b) {
      return a.line != b.line ? a.line < b.line : a.column < b.column;
    };
    auto lowest = static_cast<unsigned>(__builtin_ctz(s.waiting));
    for (uint32_t left = s.waiting; left; left &= left - 1) {
      const auto lane = static_cast<unsigned>(__builtin_ctz(left));
      if (earlier(threads[lane].site, threads[lowest].site)) lowest = lane;
    }
    const Thread& first = threads[lowest];
    uint32_t mask = 0;
    for (uint32_t left = s.waiting; left; left &= left - 1) {
      const auto lane = static_cast<unsigned>(__builtin_ctz(left));
      if (same(threads[lane].site, first.site)) mask |= bit(lane);
    }
    fire(s, mask, first.combine);
    return true;
  }
  if (!check_barrier()) leave();
  release_barrier();
  return true;
}

void Worker::release_barrier() {
  at_barrier_ = 0;
  for (unsigned g = 0; g < group_.simdgroups; ++g) {
    simdgroups_[g].ready |= simdgroups_[g].live;
    runnable_ |= bit(g);
  }
  for (unsigned t = 0; t < thread_count_; ++t) threads_[t].state = State::ready;
  if (launch_->tracker) launch_->tracker->on_threadgroup_barrier();
}

void Worker::barrier(abi::Site site) {
  const unsigned me = current_;
  threads_[me].state = State::at_barrier;
  threads_[me].site = site;
  if (++at_barrier_ == thread_count_) {
    bool mixed = false;
    for (unsigned t = 0; t < thread_count_; ++t) mixed |= !same(threads_[t].site, site);
    if (!mixed) release_barrier();
  }
  switch_to(static_cast<int>(me), pick(at_barrier_ ? me / 32 : 0));
}

void Worker::fire(Simdgroup& s, uint32_t mask, abi::Combine combine) {
  if (combine) combine(s.args, mask);
  if (combine == order_memory && launch_->tracker)
    launch_->tracker->on_simdgroup_barrier(static_cast<unsigned>(&s - simdgroups_));
  s.waiting &= ~mask;
  s.ready |= mask;
  s.mixed = false;
  const auto index = static_cast<unsigned>(&s - simdgroups_);
  runnable_ |= bit(index);
  for (uint32_t left = mask; left; left &= left - 1) {
    threads_[index * 32 + static_cast<unsigned>(__builtin_ctz(left))].state = State::ready;
  }
  // Those that still wait elsewhere start over as the first of their kind.
  bool first = true;
  for (uint32_t left = s.waiting; left; left &= left - 1) {
    const Thread& t = threads_[index * 32 + static_cast<unsigned>(__builtin_ctz(left))];
    if (first) s.site = t.site, s.combine = t.combine;
    s.mixed |= !same(t.site, s.site);
    first = false;
  }
}

void Worker::collective(void* arg, abi::Combine combine, abi::Site site) {
  const unsigned me = current_, lane = me % 32;
  Simdgroup& s = simdgroups_[me / 32];
  Thread& t = threads_[me];
  s.args[lane] = arg;
  t.site = site;
  t.combine = combine;
  if (!s.waiting) {
    s.site = site;
    s.combine = combine;
    s.mixed = false;
  } else if (!same(s.site, site)) {
    s.mixed = true;
  }
  s.waiting |= bit(lane);
  if (s.waiting == s.live && !s.mixed) {
    if (!random_) {
      // The last to arrive computes and goes on; the others follow when it waits again.
      if (combine) combine(s.args, s.waiting);
      if (combine == order_memory && launch_->tracker) launch_->tracker->on_simdgroup_barrier(me / 32);
      s.ready |= s.waiting & ~bit(lane);
      s.waiting = 0;
      if (s.ready) runnable_ |= bit(me / 32);
      return;
    }
    fire(s, s.waiting, combine);
    switch_to(static_cast<int>(me), pick(me / 32));
    return;
  }
  t.state = State::in_collective;
  const uint32_t can_run = s.unstarted | s.ready;
  if (can_run && !random_) {
    const uint32_t above = can_run & ~(bit(lane) * 2 - 1);
    switch_to(static_cast<int>(me), static_cast<int>(me - lane) + __builtin_ctz(above ? above : can_run));
    return;
  }
  switch_to(static_cast<int>(me), pick(me / 32));
}

void Worker::on_threadgroup_barrier([[maybe_unused]] unsigned flags, abi::Site site) {
  Worker* w = self();
#if defined(SOFTMETAL_TSAN)
  if (flags) __tsan_release(&w->tsan_group_);
#endif
  w->barrier(site);
#if defined(SOFTMETAL_TSAN)
  if (flags) __tsan_acquire(&w->tsan_group_);
#endif
}

void Worker::on_simdgroup_barrier(unsigned flags, abi::Site site) {
  Worker* w = self();
#if defined(SOFTMETAL_TSAN)
  const unsigned g = w->current_ / 32;
  if (flags) __tsan_release(&w->tsan_simdgroup_[g]);
#endif
  w->collective(nullptr, flags ? order_memory : nullptr, site);
#if defined(SOFTMETAL_TSAN)
  if (flags) __tsan_acquire(&w->tsan_simdgroup_[g]);
#endif
}

void Worker::on_collective(void* arg, abi::Combine combine, abi::Site site) { self()->collective(arg, combine, site); }

void Worker::on_load(const void* address, unsigned long bytes, const void* pc) {
  Worker* w = self();
  w->launch_->tracker->load(*w, address, bytes, pc);
}
void Worker::on_store(const void* address, unsigned long bytes, const void* pc) {
  Worker* w = self();
  w->launch_->tracker->store(*w, address, bytes, pc);
}
void Worker::on_atomic(const void* address, unsigned long bytes, unsigned kind, const void* pc) {
  Worker* w = self();
  w->launch_->tracker->atomic(*w, address, bytes, static_cast<abi::AtomicKind>(kind), pc);
}

}  // namespace softmetal
