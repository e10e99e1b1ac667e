#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Builds GGUF files in memory, good and bad: every count and field can be made to lie.
class GgufWriter {
 public:
  enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t extra_values = 0;  // added to the true count
  uint64_t extra_tensors = 0;
  uint64_t alignment = 32;  // used for the layout; written only by value_int("general.alignment", ...)

  template <typename T>
  static std::string raw(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string text(std::string_view s) { return raw<uint64_t>(s.size()) + std::string(s); }

  // Any key with any bytes behind it.
  GgufWriter& value(std::string_view key, uint32_t type, std::string_view payload) {
    values_ += text(key) + raw(type) + std::string(payload);
    ++num_values_;
    return *this;
  }
  GgufWriter& value_u32(std::string_view key, uint32_t v) { return value(key, kU32, raw(v)); }
  GgufWriter& value_f32(std::string_view key, float v) { return value(key, kF32, raw(v)); }
  GgufWriter& value_bool(std::string_view key, bool v) { return value(key, kBool, raw<uint8_t>(v)); }
  GgufWriter& value_string(std::string_view key, std::string_view v) { return value(key, kString, text(v)); }
  GgufWriter& value_strings(std::string_view key, const std::vector<std::string>& v) {
    std::string payload = raw<uint32_t>(kString) + raw<uint64_t>(v.size());
    for (const std::string& s : v) payload += text(s);
    return value(key, kArray, payload);
  }
  template <typename T>
  GgufWriter& value_array(std::string_view key, uint32_t type, const std::vector<T>& v) {
    std::string payload = raw<uint32_t>(type) + raw<uint64_t>(v.size());
    for (const T& x : v) payload += raw(x);
    return value(key, kArray, payload);
  }

  // A table entry as written; `dims` innermost first.
  GgufWriter& entry(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    table_ += text(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) table_ += raw(d);
    table_ += raw(type) + raw(offset);
    ++num_tensors_;
    return *this;
  }
  // An honest tensor behind the previous one.
  GgufWriter& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, std::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    entry(name, dims, type, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufWriter& tensor_f32(std::string_view name, const std::vector<uint64_t>& dims, const std::vector<float>& values) {
    return tensor(name, dims, 0, std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  }
  GgufWriter& data(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }

  std::string build() const {
    std::string out = magic + raw(version) + raw<uint64_t>(num_tensors_ + extra_tensors) +
                      raw<uint64_t>(num_values_ + extra_values) + values_ + table_;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::string values_, table_, data_;
  uint64_t num_values_ = 0, num_tensors_ = 0;
};

}  // namespace ingot
