#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "formats/checkpoint.h"
#include "formats/gguf.h"

namespace ingot {

// The metadata of a GGUF file to be written, in the order in which it is put.
class GgufValues {
 public:
  void put_u32(std::string_view key, int64_t value);
  void put_f32(std::string_view key, double value);
  void put_bool(std::string_view key, bool value);
  void put_text(std::string_view key, std::string_view value);
  void put_texts(std::string_view key, std::span<const std::string> values);
  void put_i32s(std::string_view key, std::span<const int32_t> values);
  void put_f32s(std::string_view key, std::span<const float> values);
  // All that another file has, but what describes that file: its general.file_type, its being split.
  void copy(const GgufFile& file);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }
  size_t alignment() const { return alignment_; }

 private:
  void begin(std::string_view key, uint32_t type);
  void begin_list(std::string_view key, uint32_t type, size_t count);

  std::string bytes_;
  uint64_t count_ = 0;
  size_t alignment_ = kGgufAlignment;
};

// A whole file in memory, of tensors that are not computed.
std::string gguf_bytes(const GgufValues& values, std::span<const TensorView> tensors);

struct GgufTarget {
  std::filesystem::path path;
  bool overwrite = false;  // a file that is there already; else it is refused
};

// Writes the tensors of `checkpoint` (computed ones included) to a GGUF file. The file appears under its name only when
// it is complete; on failure nothing stays behind, and what a killed process left of the same file is removed by the
// next that writes it. Refused before any work: a name that is taken, a disk that is too
// full. `progress` is called with the bytes of tensors written; it may be empty.
void write_gguf(const GgufTarget& target, const GgufValues& values, const Checkpoint& checkpoint,
                const std::function<void(size_t done, size_t total)>& progress);

}  // namespace ingot
