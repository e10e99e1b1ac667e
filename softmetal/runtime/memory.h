// Buffers of the CPU executor.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/executor.h"

namespace softmetal {

class Shadow;

class CpuMemory : public Memory {
 public:
  // `guarded` keeps unmapped space around the buffer and fills it with the poison pattern.
  CpuMemory(size_t bytes, Storage storage, bool tracked, bool guarded);
  ~CpuMemory() override;

  void* host() override { return storage == Storage::shared ? data_ : nullptr; }
  uint64_t device_address() const override { return reinterpret_cast<uint64_t>(data_); }
  char* data() const { return data_; }

  std::shared_ptr<Shadow> shadow;  // what the tracker knows of each byte

 private:
  char* data_ = nullptr;
  [[maybe_unused]] void* mapping_ = nullptr;  // unless a sanitizer's allocator gave it
  [[maybe_unused]] size_t mapping_bytes_ = 0;
};

}  // namespace softmetal
