// What compiled kernels and the CPU executor say to each other. Read by both, so it includes nothing.
#pragma once

namespace softmetal::abi {

inline constexpr unsigned kVersion = 1;
inline constexpr unsigned kSimdWidth = 32;

// Every thread of a kernel that waits has a stack of its own, aligned to its size, so that a thread finds its context
// from its stack pointer alone (SM_SANITIZED: frames are larger under a sanitizer). The contexts lie in the topmost
// page, at an offset that differs between neighbours: were it the same, the lanes of a simdgroup would fight for one
// set of the cache.
#ifdef SM_SANITIZED
inline constexpr unsigned long kStackBytes = 256 << 10;
#else
inline constexpr unsigned long kStackBytes = 64 << 10;
#endif
inline constexpr unsigned long kContextPage = 4096;
inline constexpr unsigned long kContextBytes = 128;

constexpr unsigned long stack_color(unsigned long address) { return address / kStackBytes % 32; }
constexpr unsigned long context_address(unsigned long address) {
  return (address & ~(kStackBytes - 1)) + kStackBytes - kContextPage + stack_color(address) * kContextBytes;
}

struct Uint3 {
  unsigned x, y, z;
};

// One a threadgroup.
struct GroupContext {
  Uint3 position;                      // threadgroup_position_in_grid
  Uint3 groups;                        // threadgroups_per_grid
  Uint3 size;                          // threads_per_threadgroup: smaller at the edge of a non-uniform grid
  Uint3 nominal_size;                  // dispatch_threads_per_threadgroup
  Uint3 grid;                          // threads_per_grid
  unsigned simdgroups;                 // simdgroups_per_threadgroup
  void* const* buffers;                // by buffer index
  void* const* threadgroup_arguments;  // by threadgroup index
  char* threadgroup_memory;            // the variables declared in the kernel
};

// One a thread.
struct ThreadContext {
  Uint3 position;  // thread_position_in_threadgroup
  unsigned index;  // thread_index_in_threadgroup
  unsigned lane;   // thread_index_in_simdgroup
  unsigned simdgroup;
  GroupContext* group;
  void* worker;  // the executor's
  void* fiber;
};
static_assert(sizeof(ThreadContext) <= kContextBytes);

// A place in a .metal file.
struct Site {
  const char* file;
  unsigned line, column;
};

// Runs an operation of a simdgroup once, for the lanes in `mask`; args[lane] is what each of them handed in.
using Combine = void (*)(void** args, unsigned mask);

enum AtomicKind : unsigned { kAtomicLoad, kAtomicStore, kAtomicUpdate };

// What kernels call. A table, so that a module needs no symbol of the program that loads it.
struct Runtime {
  void (*threadgroup_barrier)(unsigned flags, Site site);
  void (*simdgroup_barrier)(unsigned flags, Site site);
  void (*collective)(void* arg, Combine combine, Site site);
  void (*load)(const void* address, unsigned long bytes, const void* pc);
  void (*store)(const void* address, unsigned long bytes, const void* pc);
  void (*atomic)(const void* address, unsigned long bytes, unsigned kind, const void* pc);
};

enum ArgumentKind : unsigned {
  kBuffer,
  kThreadgroup,
  kThreadPositionInThreadgroup,
  kThreadgroupPositionInGrid,
  kThreadPositionInGrid,
  kThreadsPerThreadgroup,
  kDispatchThreadsPerThreadgroup,
  kThreadgroupsPerGrid,
  kThreadsPerGrid,
  kThreadIndexInThreadgroup,
  kThreadIndexInSimdgroup,
  kSimdgroupIndexInThreadgroup,
  kSimdgroupsPerThreadgroup,
  kThreadsPerSimdgroup,
};

struct Argument {
  ArgumentKind kind;
  unsigned index;
  const char* name;
  unsigned long bytes;  // the least a binding must hold: one element
  unsigned alignment;   // of the binding's address
  bool enabled;         // false: switched off by its function constant
  bool writable;
};

// An argument of a kernel that runs as a grid of a GPU, in words that need no layout: an array of these is the module's
// `softmetal_arguments`, in the order of the grid's parameters.
struct GridArgument {
  unsigned kind;  // ArgumentKind
  unsigned index;
  unsigned bytes;
  unsigned alignment;
  unsigned enabled;
  unsigned writable;
  unsigned by_value;  // the grid is given the bytes, not their address
};

// The one thing a module exports, as `softmetal_module`. Each module holds one kernel of one specialisation.
struct Module {
  unsigned version;
  const char* name;
  unsigned max_threads;  // max_total_threads_per_threadgroup
  void (*run)();         // one thread, described by its context
  const Argument* arguments;
  unsigned argument_count;
  const unsigned* static_threadgroup_bytes;
  const Runtime** runtime;  // set by the loader
};

}  // namespace softmetal::abi
