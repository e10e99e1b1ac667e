#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/checkpoint.h"

namespace ingot {

// A metadata value. Integers of every width arrive as int64 (uint64 above its range is refused), floats as double.
// Arrays of integers and bools become vector<int64_t>; strings are views into the mapped file.
// Arrays of arrays are refused: no model file has them and they are only good for exhausting a parser.
using GgufValue = std::variant<bool, int64_t, double, std::string_view, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string_view>>;

inline constexpr int64_t kGgufAlignment = 32;  // of tensors, where general.alignment does not say otherwise

// A metadata value as it lies in the file: name, type and contents.
struct GgufRawValue {
  std::string_view key;
  std::span<const std::byte> bytes;
};

// A GGUF model file, version 2 or 3, little-endian, memory-mapped. Opening the first file of a split set
// (name-00001-of-00003.gguf) opens them all. Every offset and size is checked before it is used: a file that opens has
// only whole tensors that lie inside it and do not overlap. A tensor type we do not read is declined by name.
class GgufFile : public Checkpoint {
 public:
  static std::shared_ptr<GgufFile> open(const std::filesystem::path& path);
  // The same over a copy of `bytes`, for tests and fuzzers; split sets are refused. `name` stands for the path in
  // errors.
  static std::shared_ptr<GgufFile> open_bytes(std::span<const std::byte> bytes, std::string name = "memory.gguf");

  // Metadata, of the first file where there are several.
  const GgufValue* find_value(std::string_view key) const;  // nullptr when absent
  const std::map<std::string, GgufValue, std::less<>>& values() const;

  const std::vector<GgufRawValue>& raw_values() const;  // the same, in the order of the file

  // Typed access; nullopt when absent, bad_file naming the key when it has another type (an integer reads as a double).
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_double(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  const std::vector<int64_t>* get_ints(std::string_view key) const;
  const std::vector<double>* get_doubles(std::string_view key) const;
  const std::vector<std::string_view>* get_strings(std::string_view key) const;

  const std::vector<TensorView>& tensors() const override;
  const TensorView* find(std::string_view name) const override;
  uint64_t file_bytes() const override;
  void drop_pages(std::span<const std::byte> bytes) const override;
  std::string describe() const override;

  const std::string& name() const;  // the path of the (first) file
  uint32_t version() const;         // 2 or 3

  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  ~GgufFile() override;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
