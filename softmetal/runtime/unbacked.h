// What a device that compiles and runs nothing is made of.
#pragma once

#include <sys/mman.h>

#include <memory>

#include "runtime/executor.h"

namespace softmetal {

// Address space as large as asked for, no memory behind it until it is touched.
class UnbackedMemory : public Memory {
 public:
  UnbackedMemory(size_t bytes, Storage s) {
    length = bytes;
    storage = s;
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw OutOfMemory("no address space");
  }
  ~UnbackedMemory() override { munmap(data_, length); }
  void* host() override { return storage == Storage::shared ? data_ : nullptr; }
  uint64_t device_address() const override { return reinterpret_cast<uint64_t>(data_); }

 private:
  void* data_ = nullptr;
};

class IdleStream : public Stream {
 public:
  void submit(std::unique_ptr<CommandList>, Done done, bool) override { done({}); }
};

// "LINEAR_ROWS=8u LINEAR_LANES=32u"
inline std::string constants_line(const std::vector<ConstantValue>& constants) {
  std::string text;
  for (const ConstantValue& c : constants) text += (text.empty() ? "" : " ") + c.name + "=" + c.value;
  return text;
}

}  // namespace softmetal
