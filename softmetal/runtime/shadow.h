// What the tracker knows of each byte of a buffer. Pages that no kernel touches cost nothing.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace softmetal {

// The last to write and to read a byte. Threads are numbered within the dispatch: threadgroup * 1024 + index.
enum Readers : uint8_t { kOneThread, kManyLanes, kManySimdgroups };  // since the last barrier that orders them

struct ByteHistory {
  uint32_t write_command, read_command, earlier_read_command;
  uint32_t writer, reader;
  uint16_t write_epoch, read_epoch;            // threadgroup barriers passed
  uint16_t write_simd_epoch, read_simd_epoch;  // barriers of the simdgroup passed
  uint8_t written, atomic_write;
  Readers readers;
  uint8_t unused;
};

// Which bytes of an aligned word the command has loaded or stored already: command << 4 | mask.
struct WordCount {
  uint32_t loaded, stored;
};

class Shadow {
 public:
  Shadow(size_t bytes, bool strict)
      : bytes_(strict ? bytes * sizeof(ByteHistory) : (bytes / 4 + 1) * sizeof(WordCount)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Shadow() { munmap(data_, bytes_); }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  ByteHistory* history() const { return static_cast<ByteHistory*>(data_); }
  WordCount* counts() const { return static_cast<WordCount*>(data_); }

  uint32_t barrier_epoch = 0;  // commands before this one are ordered by a barrier that named the buffer

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace softmetal
