#include "runtime/tracker.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "compiler/process.h"
#include "runtime/poison.h"

namespace softmetal {
namespace {

std::mutex traffic_mutex;
std::vector<Traffic> traffic;
constexpr size_t kMaxTraffic = 1 << 20;

// Bytes that are used together have one history: what was found of the first holds for the next ones.
struct Repeat {
  ByteHistory before, after;
  bool known = false;

  // True when h was like the byte before it, and is like it again. What is loaded and was never written is looked at
  // byte by byte: its value counts.
  bool again(ByteHistory& h, bool loads) {
    if (known && (h.written || !loads) && std::memcmp(&h, &before, sizeof h) == 0) {
      h = after;
      return true;
    }
    known = true;
    before = h;
    return false;
  }
};

std::string name_of(const CpuMemory& memory) { return memory.label.empty() ? "" : " '" + memory.label + "'"; }

}  // namespace

std::vector<Traffic> take_traffic() {
  std::lock_guard lock(traffic_mutex);
  return std::exchange(traffic, {});
}

std::string line_of(const std::string& module_path, uint64_t offset) {
  char address[32];
  std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(offset));
  for (const char* tool : {"llvm-symbolizer-19", "llvm-symbolizer"}) {
    const ProcessResult r = run_process(
        {tool, "--obj=" + module_path, "--relative-address", "--output-style=GNU", "-f=none", "-i", address}, "/");
    if (r.status != 0) continue;
    // Innermost first; the library's own headers are not what the reader looks for.
    for (size_t at = 0; at < r.output.size();) {
      const size_t end = std::min(r.output.find('\n', at), r.output.size());
      const std::string line = r.output.substr(at, end - at);
      at = end + 1;
      if (line.empty() || line.find("/sm/") != std::string::npos || line.find("??") != std::string::npos) continue;
      const size_t slash = line.rfind('/');
      std::string shown = slash == std::string::npos ? line : line.substr(slash + 1);
      const size_t colons = shown.find(':');
      const size_t second = colons == std::string::npos ? colons : shown.find(':', colons + 1);
      return shown.substr(0, second == std::string::npos ? shown.find(' ') : second);
    }
    return "";
  }
  return "";
}

Tracker::Tracker(Mode mode, Unwritten unwritten, WithLines with_lines)
    : mode_(mode), unwritten_(unwritten), with_lines_(std::move(with_lines)) {}

void Tracker::add(CpuMemory& memory) {
  memory.shadow = std::make_shared<Shadow>(memory.length, mode_ == Mode::strict);
  memories_[reinterpret_cast<uintptr_t>(memory.data())] = &memory;
}
void Tracker::remove(CpuMemory& memory) { memories_.erase(reinterpret_cast<uintptr_t>(memory.data())); }

bool Tracker::Past::has(uint32_t command) const {
  if (command < before) return true;
  const auto next = ranges.upper_bound(command);
  return next != ranges.begin() && command < std::prev(next)->second;
}
void Tracker::Past::add(uint32_t begin, uint32_t end) {
  if (end > begin) ranges[begin] = std::max(ranges[begin], end);
  while (!ranges.empty() && ranges.begin()->first <= before) {
    before = std::max(before, ranges.begin()->second);
    ranges.erase(ranges.begin());
  }
}
void Tracker::Past::add(const Past& other) {
  before = std::max(before, other.before);
  for (const auto& [begin, end] : other.ranges) add(begin, end);
  add(0, 0);
}

void Tracker::begin_list(bool alone) {
  if (alone) ended_ = command_ + 1;
}
void Tracker::begin_encoder(bool concurrent) {
  concurrent_ = concurrent;
  encoder_begin_ = barrier_epoch_ = command_ + 1;
  past_ = {ended_, {}};
}
void Tracker::update_fence(const void* fence) {
  Past past = past_;
  past.add(encoder_begin_, command_ + 1);
  fences_[fence] = std::move(past);
}
void Tracker::wait_fence(const void* fence) {
  if (auto f = fences_.find(fence); f != fences_.end()) past_.add(f->second);
}

void Tracker::begin_command(const std::string& name) {
  ++command_;
  names_.push_back(name);
}

void Tracker::begin_dispatch(const std::string& kernel, const Module& module, const std::vector<Bound>& buffers,
                             std::vector<Inline> inline_bytes) {
  begin_command(kernel);
  kernel_ = kernel;
  module_ = &module;
  regions_.clear();
  last_region_ = 0;
  for (const Bound& b : buffers) {
    const auto begin = reinterpret_cast<uintptr_t>(b.memory->data());
    // A buffer bound twice is one region.
    if (std::any_of(regions_.begin(), regions_.end(), [&](const Region& r) { return r.memory == b.memory; })) continue;
    regions_.push_back({b.memory, b.index, begin, begin + b.memory->length, {b.memory->label, 0, 0, 0, 0}});
  }
  inline_ = std::move(inline_bytes);
}

void Tracker::report(std::vector<Region>& regions, const std::string& name) {
  Traffic t;
  t.kernel = name;
  for (Region& r : regions) {
    t.loaded += r.traffic.loaded;
    t.stored += r.traffic.stored;
    t.unique_loaded += r.traffic.unique_loaded;
    t.unique_stored += r.traffic.unique_stored;
    t.buffers.push_back(std::move(r.traffic));
  }
  std::lock_guard lock(traffic_mutex);
  if (traffic.size() < kMaxTraffic) traffic.push_back(std::move(t));
}

void Tracker::end_dispatch() {
  report(regions_, kernel_);
  regions_.clear();
}

void Tracker::begin_group(Worker& worker, uint64_t group) {
  group_ = static_cast<uint32_t>(group);
  group_epoch_ = 1;
  std::fill(std::begin(simdgroup_epoch_), std::end(simdgroup_epoch_), uint16_t{1});
  if (mode_ == Mode::strict) threadgroup_.assign(worker.threadgroup_extent(), ByteHistory{});
}

std::string Tracker::place(const void* pc) const {
  if (!module_) return "";
  const std::string line = line_of(with_lines_(module_->path), reinterpret_cast<uintptr_t>(pc) - module_->base - 1);
  return line.empty() ? "" : " (" + line + ")";
}

bool Tracker::complain(Worker& worker, const std::string& message, const void* pc) const {
  worker.set_error("kernel " + kernel_ + place(pc) + ": " + message);
  return false;
}

bool Tracker::outside(Worker& worker, uintptr_t address, size_t bytes, const void* pc, Kind kind) const {
  const std::string what = std::string(!kind.stores ? "loads " : "stores ") + std::to_string(bytes) + " bytes ";
  const auto distance = [address](const Region& r) {  // 0: it begins inside and reaches past the end
    return address < r.begin ? r.begin - address : address < r.end ? 0 : address - r.end;
  };
  const Region* nearest = nullptr;
  for (const Region& r : regions_)
    if (!nearest || distance(r) < distance(*nearest)) nearest = &r;
  auto owner = memories_.upper_bound(address);
  if (owner != memories_.begin()) {
    const CpuMemory& m = *std::prev(owner)->second;
    if (address < reinterpret_cast<uintptr_t>(m.data()) + m.length &&
        std::none_of(regions_.begin(), regions_.end(), [&](const Region& r) { return r.memory == &m; })) {
      return complain(worker, what + "of the buffer" + name_of(m) + ", which is not bound to it", pc);
    }
  }
  if (!nearest) return complain(worker, what + "outside of all buffers", pc);
  const auto offset = static_cast<int64_t>(address - nearest->begin);
  return complain(worker,
                  what + "at offset " + std::to_string(offset) + " of buffer " + std::to_string(nearest->index) +
                      name_of(*nearest->memory) + ", which has " + std::to_string(nearest->memory->length) + " bytes",
                  pc);
}

void Tracker::access(Worker& worker, const void* pointer, size_t bytes, const void* pc, Kind kind) {
  if (!allowed(worker, pointer, bytes, pc, kind)) worker.leave();
}

bool Tracker::allowed(Worker& worker, const void* pointer, size_t bytes, const void* pc, Kind kind) {
  if (worker.stacks().contains(pointer)) return true;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (size_t i = 0, n = regions_.size(); i < n; ++i) {
    const size_t r = last_region_ + i < n ? last_region_ + i : last_region_ + i - n;
    Region& region = regions_[r];
    if (address < region.begin || address >= region.end) continue;
    if (bytes > region.end - address) return outside(worker, address, bytes, pc, kind);
    last_region_ = r;
    return access_buffer(worker, region, address - region.begin, bytes, pc, kind);
  }
  const auto arena = reinterpret_cast<uintptr_t>(worker.threadgroup_memory());
  if (address >= arena && address < arena + (1 << 20)) {
    return access_threadgroup(worker, address - arena, bytes, pc, kind);
  }
  for (const Inline& b : inline_) {
    if (address >= b.begin && address < b.end && bytes <= b.end - address && !kind.stores) return true;
  }
  if (address >= module_->base && address < module_->end) return true;
  const auto own = reinterpret_cast<uintptr_t>(&worker);
  if (address >= own && address < own + sizeof(Worker)) return true;
  const auto launch = reinterpret_cast<uintptr_t>(&worker.launch());
  if (address >= launch && address < launch + sizeof(Launch)) return true;
  return outside(worker, address, bytes, pc, kind);
}

bool Tracker::ordered(const CpuMemory& memory, uint32_t other) const {
  if (other == command_ || other == 0) return true;
  if (by_host(other)) return other < waited_;
  if (other >= encoder_begin_) return !concurrent_ || other < std::max(barrier_epoch_, memory.shadow->barrier_epoch);
  return memory.tracked || past_.has(other);
}

bool Tracker::hazardous(const CpuMemory& memory, const ByteHistory& h, Kind kind) const {
  if (kind.atomic && h.atomic_write) return false;
  if (!ordered(memory, h.write_command)) return true;
  return kind.stores && (!ordered(memory, h.read_command) || !ordered(memory, h.earlier_read_command));
}

std::string Tracker::hazard(const CpuMemory& memory, const ByteHistory& h, Kind kind) const {
  auto text = [&](const char* what, uint32_t other) {
    const char* order = by_host(other) ? "event" : other >= encoder_begin_ ? "barrier" : "fence";
    return std::string(what) + names_[other] + " with no " + order + " between";
  };
  if (!ordered(memory, h.write_command))
    return text(!kind.stores ? "reads what is written by " : "writes what is written by ", h.write_command);
  return text("writes what is read by ", ordered(memory, h.read_command) ? h.earlier_read_command : h.read_command);
}

bool Tracker::races(const ByteHistory& h, unsigned thread, Kind kind, bool any_group) const {
  const uint32_t me = group_ * 1024 + thread;
  auto unordered = [&](uint32_t who, uint16_t epoch, uint16_t simd_epoch) {
    if (who == me) return false;
    if (who / 1024 != group_) return any_group;
    if (epoch != group_epoch_) return false;
    return who % 1024 / 32 != thread / 32 || simd_epoch == simdgroup_epoch_[thread / 32];
  };
  const bool both_atomic = kind.atomic && h.atomic_write;
  if (h.write_command == command_ && !both_atomic && unordered(h.writer, h.write_epoch, h.write_simd_epoch))
    return true;
  if (!kind.stores || h.read_command != command_ || both_atomic) return false;
  if (unordered(h.reader, h.read_epoch, h.read_simd_epoch)) return true;
  if (h.reader / 1024 != group_ || h.read_epoch != group_epoch_) return false;
  return h.readers == kManySimdgroups ||
         (h.readers == kManyLanes && h.read_simd_epoch == simdgroup_epoch_[thread / 32]);
}

void Tracker::remember(ByteHistory& h, unsigned thread, Kind kind) const {
  const uint32_t me = group_ * 1024 + thread;
  if (kind.loads) {
    const bool fresh = h.read_command != command_ || h.read_epoch != group_epoch_ || h.reader / 1024 != group_;
    if (h.read_command != command_) {
      h.earlier_read_command = h.read_command;
      h.read_command = command_;
    }
    // Readers are not remembered one by one, only how far apart they are.
    if (fresh) {
      h.readers = kOneThread;
    } else if (h.reader % 1024 / 32 != thread / 32) {
      h.readers = kManySimdgroups;
    } else if (h.reader != me && h.readers == kOneThread && h.read_simd_epoch == simdgroup_epoch_[thread / 32]) {
      h.readers = kManyLanes;
    } else if (h.readers == kManyLanes && h.read_simd_epoch != simdgroup_epoch_[thread / 32]) {
      h.readers = kOneThread;
    }
    h.reader = me;
    h.read_epoch = group_epoch_;
    h.read_simd_epoch = simdgroup_epoch_[thread / 32];
  }
  if (kind.stores) {
    h.write_command = command_;
    h.writer = me;
    h.write_epoch = group_epoch_;
    h.write_simd_epoch = simdgroup_epoch_[thread / 32];
    h.written = 1;
    h.atomic_write = kind.atomic;
  }
}

bool Tracker::never_written(const CpuMemory& memory, const ByteHistory& h, size_t offset) const {
  if (h.written || unwritten_ == Unwritten::poison) return false;
  return memory.storage == Storage::private_ || looks_poisoned(memory.data() + offset);
}

void Tracker::count(Region& region, size_t offset, size_t bytes, Kind kind) {
  Traffic::Buffer& t = region.traffic;
  if (kind.loads) t.loaded += bytes;
  if (kind.stores) t.stored += bytes;
  if (mode_ == Mode::strict) return;  // the histories tell which bytes are new
  auto mark = [&](uint32_t& word, uint32_t mask) {
    const uint32_t seen = word >> 4 == (command_ & 0xfffffff) ? word & 15 : 0;
    word = command_ << 4 | seen | mask;
    return static_cast<unsigned>(__builtin_popcount(mask & ~seen));
  };
  for (size_t at = offset, end = offset + bytes; at < end;) {
    const size_t stop = std::min(end, (at / 4 + 1) * 4);
    const uint32_t mask = ((1u << (stop - at)) - 1) << at % 4;
    WordCount& w = region.memory->shadow->counts()[at / 4];
    if (kind.loads) t.unique_loaded += mark(w.loaded, mask);
    if (kind.stores) t.unique_stored += mark(w.stored, mask);
    at = stop;
  }
}

bool Tracker::access_buffer(Worker& worker, Region& region, size_t offset, size_t bytes, const void* pc, Kind kind) {
  count(region, offset, bytes, kind);
  if (mode_ != Mode::strict) return true;
  const CpuMemory& memory = *region.memory;
  ByteHistory* h = memory.shadow->history() + offset;
  const unsigned thread = worker.current_thread();
  auto where = [&](size_t i) {
    return "offset " + std::to_string(offset + i) + " of buffer " + std::to_string(region.index) + name_of(memory);
  };
  Repeat repeat;
  for (size_t i = 0; i < bytes; ++i) {
    if (kind.loads) region.traffic.unique_loaded += h[i].read_command != command_;
    if (kind.stores) region.traffic.unique_stored += h[i].write_command != command_;
    if (repeat.again(h[i], kind.loads)) continue;
    if (hazardous(memory, h[i], kind)) return complain(worker, hazard(memory, h[i], kind) + ", at " + where(i), pc);
    if (races(h[i], thread, kind, true)) {
      return complain(worker, "a race of two threads, unordered by a barrier, at " + where(i), pc);
    }
    if (kind.loads && never_written(memory, h[i], offset + i)) {
      return complain(worker, "loads memory that was never written, at " + where(i), pc);
    }
    remember(h[i], thread, kind);
    repeat.after = h[i];
  }
  return true;
}

bool Tracker::access_threadgroup(Worker& worker, size_t offset, size_t bytes, const void* pc, Kind kind) {
  if (mode_ != Mode::strict) return true;
  if (offset + bytes > threadgroup_.size()) {
    return complain(worker,
                    std::string(!kind.stores ? "loads" : "stores") + " past the end of threadgroup memory, which has " +
                        std::to_string(threadgroup_.size()) + " bytes",
                    pc);
  }
  const unsigned thread = worker.current_thread();
  Repeat repeat;
  for (size_t i = offset; i < offset + bytes; ++i) {
    ByteHistory& h = threadgroup_[i];
    if (repeat.again(h, kind.loads)) continue;
    if (races(h, thread, kind, false)) {
      return complain(worker, "a race of two threads in threadgroup memory, unordered by a barrier", pc);
    }
    if (kind.loads && !h.written && unwritten_ == Unwritten::error) {
      return complain(worker, "loads threadgroup memory that was never written", pc);
    }
    remember(h, thread, kind);
    repeat.after = h;
  }
  return true;
}

std::string Tracker::transfer(Region& region, size_t offset, size_t bytes, Kind kind) {
  count(region, offset, bytes, kind);
  if (mode_ != Mode::strict) return "";
  ByteHistory* h = region.memory->shadow->history() + offset;
  Repeat repeat;
  for (size_t i = 0; i < bytes; ++i) {
    if (repeat.again(h[i], false)) continue;
    if (hazardous(*region.memory, h[i], kind)) {
      return hazard(*region.memory, h[i], kind) + ", at offset " + std::to_string(offset + i) + " of the buffer" +
             name_of(*region.memory);
    }
    remember(h[i], 0, kind);
    repeat.after = h[i];
  }
  return "";
}

std::string Tracker::copy(CpuMemory& from, size_t from_offset, CpuMemory& to, size_t to_offset, size_t bytes) {
  begin_command("a copy");
  std::vector<Region> regions = {{&from, -1, 0, 0, {from.label, 0, 0, 0, 0}}, {&to, -1, 0, 0, {to.label, 0, 0, 0, 0}}};
  std::string error = transfer(regions[0], from_offset, bytes, kLoad);
  if (error.empty()) error = transfer(regions[1], to_offset, bytes, kStore);
  if (!error.empty()) return "copyFromBuffer() " + error;
  if (mode_ == Mode::strict) {
    // What was never written stays so in its copy.
    const ByteHistory* source = from.shadow->history() + from_offset;
    ByteHistory* target = to.shadow->history() + to_offset;
    for (size_t i = 0; i < bytes; ++i) target[i].written = !never_written(from, source[i], from_offset + i);
  }
  report(regions, "a copy");
  return "";
}

std::string Tracker::fill(CpuMemory& to, size_t offset, size_t bytes) {
  begin_command("a fill");
  std::vector<Region> regions = {{&to, -1, 0, 0, {to.label, 0, 0, 0, 0}}};
  if (std::string error = transfer(regions[0], offset, bytes, kStore); !error.empty()) return "fillBuffer() " + error;
  report(regions, "a fill");
  return "";
}

bool Tracker::by_host(uint32_t command) const {
  return !host_commands_.empty() && std::binary_search(host_commands_.begin(), host_commands_.end(), command);
}

std::string Tracker::host(CpuMemory& memory, size_t offset, size_t bytes, bool writes) {
  if (mode_ != Mode::strict) return "";
  begin_command("the host");
  host_commands_.push_back(command_);
  ByteHistory* h = memory.shadow->history() + offset;
  for (size_t i = 0; i < bytes; ++i) {
    const auto unordered = [&](uint32_t other) { return other >= signalled_ && other != 0 && !by_host(other); };
    const uint32_t reader = unordered(h[i].read_command) ? h[i].read_command : h[i].earlier_read_command;
    const bool written = unordered(h[i].write_command);
    if (written || (writes && unordered(reader)))
      return "the host " + std::string(writes ? "writes" : "reads") + " what is " + (written ? "written" : "read") +
             " by " + names_[written ? h[i].write_command : reader] + " with no event between, at offset " +
             std::to_string(offset + i) + " of the buffer" + name_of(memory);
    remember(h[i], 0, writes ? kStore : kLoad);
  }
  return "";
}

std::string Tracker::indirect(CpuMemory& from, size_t offset) {
  begin_command("indirect arguments");
  Region region{&from, -1, 0, 0, {}};
  return transfer(region, offset, 12, kLoad);
}

std::string Tracker::other(const std::string& name, const std::vector<Touched>& ranges) {
  begin_command(name);
  std::vector<Region> regions;
  for (const Touched& t : ranges) {
    regions.push_back({t.memory, -1, 0, 0, {t.memory->label, 0, 0, 0, 0}});
    if (std::string error = transfer(regions.back(), t.offset, t.bytes, t.stores ? kStore : kLoad); !error.empty())
      return name + " " + error;
  }
  report(regions, name);
  return "";
}

}  // namespace softmetal
