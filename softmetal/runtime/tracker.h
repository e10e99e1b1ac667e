// Strict and counting modes: sees every load and store of a kernel, and every blit. Knows who touched each byte last,
// so it tells what a device would not: indices past a buffer's end, memory never written, races, missing barriers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/memory.h"
#include "runtime/shadow.h"
#include "runtime/worker.h"
#include "softmetal/softmetal.h"

namespace softmetal {

// The line of a .metal file that the code at `offset` of a module came from, as "file:line"; empty when it is unknown.
std::string line_of(const std::string& module_path, uint64_t offset);

class Tracker {
 public:
  // `with_lines`: the path of a module with the same code and its lines, from that of the module.
  using WithLines = std::function<std::string(const std::string& path)>;
  Tracker(Mode mode, Unwritten unwritten, WithLines with_lines);

  void add(CpuMemory& memory);
  void remove(CpuMemory& memory);

  // --- the order of commands
  // ------------------------------------------------------------------------------------------ `alone`: everything
  // before had ended when the list was committed.
  void begin_list(bool alone);
  void begin_encoder(bool concurrent);
  void barrier_all() { barrier_epoch_ = command_ + 1; }
  void barrier(CpuMemory& memory) { memory.shadow->barrier_epoch = command_ + 1; }
  void update_fence(const void* fence);
  void wait_fence(const void* fence);
  // A signal tells the host of everything before it, a wait what follows of what the host did.
  void event(bool waits) { (waits ? waited_ : signalled_) = command_ + 1; }

  // --- commands
  // -------------------------------------------------------------------------------------------------------
  struct Module {
    std::string path;
    uintptr_t base = 0, end = 0;
  };
  struct Bound {
    CpuMemory* memory;
    int index;  // of the argument; -1: useResource
  };
  struct Inline {
    uintptr_t begin, end;  // what setBytes gave one argument
  };
  void begin_dispatch(const std::string& kernel, const Module& module, const std::vector<Bound>& buffers,
                      std::vector<Inline> inline_bytes);
  void end_dispatch();
  // Return an error, empty when all is well. The transfer itself is the caller's.
  std::string copy(CpuMemory& from, size_t from_offset, CpuMemory& to, size_t to_offset, size_t bytes);
  std::string fill(CpuMemory& to, size_t offset, size_t bytes);
  std::string indirect(CpuMemory& from, size_t offset);
  // What the host does to memory that both reach.
  std::string host(CpuMemory& memory, size_t offset, size_t bytes, bool writes);
  struct Touched {
    CpuMemory* memory;
    size_t offset, bytes;
    bool stores;
  };
  std::string other(const std::string& name, const std::vector<Touched>& ranges);

  // --- from kernels
  // ---------------------------------------------------------------------------------------------------
  void begin_group(Worker& worker, uint64_t group);
  void on_threadgroup_barrier() { ++group_epoch_; }
  void on_simdgroup_barrier(unsigned simdgroup) { ++simdgroup_epoch_[simdgroup]; }
  void load(Worker& w, const void* address, size_t bytes, const void* pc) { access(w, address, bytes, pc, kLoad); }
  void store(Worker& w, const void* address, size_t bytes, const void* pc) { access(w, address, bytes, pc, kStore); }
  void atomic(Worker& w, const void* address, size_t bytes, abi::AtomicKind kind, const void* pc) {
    access(w, address, bytes, pc, {kind != abi::kAtomicStore, kind != abi::kAtomicLoad, true});
  }

 private:
  struct Kind {
    bool loads, stores, atomic;
  };
  static constexpr Kind kLoad{true, false, false}, kStore{false, true, false};
  // The commands that have ended before some other: all below `before`, and ranges [first, second) above it. A fence
  // tells of the encoder that updated it and of what that one had waited for, not of what stands before it in the
  // queue.
  struct Past {
    uint32_t before = 1;
    std::map<uint32_t, uint32_t> ranges;

    bool has(uint32_t command) const;
    void add(uint32_t begin, uint32_t end);
    void add(const Past& other);
  };
  struct Region {
    CpuMemory* memory;
    int index;
    uintptr_t begin, end;
    Traffic::Buffer traffic;
  };

  void access(Worker& worker, const void* address, size_t bytes, const void* pc, Kind kind);
  // Whether the access is right; if not, the worker has the error.
  bool allowed(Worker& worker, const void* address, size_t bytes, const void* pc, Kind kind);
  bool access_buffer(Worker& worker, Region& region, size_t offset, size_t bytes, const void* pc, Kind kind);
  bool access_threadgroup(Worker& worker, size_t offset, size_t bytes, const void* pc, Kind kind);
  // Hazards with earlier commands, and the text of the first one.
  bool hazardous(const CpuMemory& memory, const ByteHistory& h, Kind kind) const;
  std::string hazard(const CpuMemory& memory, const ByteHistory& h, Kind kind) const;
  // Races with other threads of the same dispatch.
  bool races(const ByteHistory& h, unsigned thread, Kind kind, bool any_group) const;
  void remember(ByteHistory& h, unsigned thread, Kind kind) const;
  void count(Region& region, size_t offset, size_t bytes, Kind kind);
  bool never_written(const CpuMemory& memory, const ByteHistory& h, size_t offset) const;
  std::string transfer(Region& region, size_t offset, size_t bytes, Kind kind);
  bool ordered(const CpuMemory& memory, uint32_t other) const;
  bool by_host(uint32_t command) const;
  void begin_command(const std::string& name);
  void report(std::vector<Region>& regions, const std::string& name);
  std::string place(const void* pc) const;
  // Both return false, for their callers to hand on.
  bool complain(Worker& worker, const std::string& message, const void* pc) const;
  bool outside(Worker& worker, uintptr_t address, size_t bytes, const void* pc, Kind kind) const;

  const Mode mode_;
  const Unwritten unwritten_;
  const WithLines with_lines_;
  std::map<uintptr_t, CpuMemory*> memories_;

  uint32_t command_ = 0;                // the running one, counted from 1
  std::vector<std::string> names_{""};  // of all commands
  bool concurrent_ = false;
  uint32_t encoder_begin_ = 1, barrier_epoch_ = 1;
  uint32_t ended_ = 1;  // commands below it had ended when the running list was committed
  Past past_;           // of the running encoder
  std::map<const void*, Past> fences_;
  std::vector<uint32_t> host_commands_;  // what the host did, as commands
  uint32_t signalled_ = 0, waited_ = 0;  // commands below were before the last event of each kind

  std::string kernel_;
  const Module* module_ = nullptr;
  std::vector<Region> regions_;
  size_t last_region_ = 0;
  std::vector<Inline> inline_;

  uint32_t group_ = 0;
  uint16_t group_epoch_ = 1, simdgroup_epoch_[32] = {};
  std::vector<ByteHistory> threadgroup_;
};

}  // namespace softmetal
