#include "formats/safetensors_part.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"

namespace ingot {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMostDims = 8;

struct StoredType {
  std::string_view name;
  uint64_t bytes;  // of one element
  int dtype;       // DType, or -1: not supported
};
constexpr StoredType kStoredTypes[] = {
    {"F32", 4, static_cast<int>(DType::f32)},
    {"F16", 2, static_cast<int>(DType::f16)},
    {"BF16", 2, static_cast<int>(DType::bf16)},
    {"F64", 8, -1},
    {"I64", 8, -1},
    {"I32", 4, -1},
    {"I16", 2, -1},
    {"I8", 1, -1},
    {"U64", 8, -1},
    {"U32", 4, -1},
    {"U16", 2, -1},
    {"U8", 1, -1},
    {"BOOL", 1, -1},
    {"F8_E4M3", 1, -1},
    {"F8_E5M2", 1, -1},
};

class HeaderReader {
 public:
  explicit HeaderReader(SafetensorsPart& part) : part_(part) {}

  void parse() {
    const nlohmann::json header = parse_header();
    if (!header.is_object())
      throw_error(ErrorKind::bad_file, "{}: the header must be a JSON object, got {}", part_.file.name(),
                  header.type_name());
    for (const auto& [name, entry] : header.items())
      if (name != "__metadata__") parse_entry(name, entry);
    check_layout();
    for (Entry& entry : entries_) keep(entry);
  }

 private:
  struct Entry {
    TensorView tensor;
    std::string stored;  // the file's name of the type
    bool supported = false;
    uint64_t begin = 0, end = 0;  // in data_
  };

  template <typename... Args>
  [[noreturn]] void fail(std::string_view tensor, fmt::format_string<Args...> format, Args&&... args) const {
    throw_error(ErrorKind::bad_file, "{}: tensor {}: {}", part_.file.name(), printable(tensor),
                fmt::format(format, std::forward<Args>(args)...));
  }

  nlohmann::json parse_header() {
    const std::span<const std::byte> bytes = part_.file.bytes();
    const std::string& name = part_.file.name();
    uint64_t length = 0;
    if (bytes.size() < sizeof(length))
      throw_error(ErrorKind::bad_file, "{}: {} bytes are too few for a safetensors file", name, bytes.size());
    std::memcpy(&length, bytes.data(), sizeof(length));
    if (length > kMaxHeaderBytes)
      throw_error(ErrorKind::bad_file,
                  "{}: a header of {} bytes is over the limit of {}; this is not a safetensors file", name, length,
                  kMaxHeaderBytes);
    if (length > bytes.size() - sizeof(length))
      throw_error(ErrorKind::bad_file,
                  "{}: the header of {} bytes runs past the end of the file ({} bytes); it is truncated", name, length,
                  bytes.size());
    data_ = bytes.subspan(sizeof(length) + length);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(length), length);
    return parse_json(text, name + ": header", {.max_bytes = kMaxHeaderBytes, .max_depth = 8, .unique_keys = true});
  }

  void parse_entry(const std::string& name, const nlohmann::json& value) {
    if (!value.is_object()) fail(name, "its entry must be an object, got {}", value.type_name());
    const JsonView view(value, part_.file.name(), printable(name) + ".");
    Entry entry;
    entry.tensor.name = name;
    entry.stored = printable(view.need_string("dtype"));
    const uint64_t elements = parse_shape(entry.tensor, view);
    parse_offsets(entry, view);
    for (const StoredType& type : kStoredTypes) {
      if (type.name != entry.stored) continue;
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(elements, type.bytes, &bytes) || bytes != entry.end - entry.begin)
        fail(name, "its shape needs {} elements of {} but its data has {} bytes", elements, type.name,
             entry.end - entry.begin);
      entry.supported = type.dtype >= 0;
      if (entry.supported) entry.tensor.dtype = static_cast<DType>(type.dtype);
    }
    entries_.push_back(std::move(entry));
  }

  uint64_t parse_shape(TensorView& tensor, const JsonView& view) const {
    const nlohmann::json* shape = view.find("shape");
    if (shape == nullptr || !shape->is_array()) fail(tensor.name, "shape must be a list of sizes");
    if (shape->size() > kMostDims)
      fail(tensor.name, "has {} dimensions, at most {} are allowed", shape->size(), kMostDims);
    int64_t elements = 1;
    for (int64_t size : view.find_ints("shape")) {
      if (size < 0) fail(tensor.name, "a dimension is {}", size);
      if (__builtin_mul_overflow(elements, size, &elements)) fail(tensor.name, "its dimensions overflow");
      tensor.shape.push_back(size);
    }
    return static_cast<uint64_t>(elements);
  }

  void parse_offsets(Entry& entry, const JsonView& view) const {
    const std::string& name = entry.tensor.name;
    const std::vector<int64_t> offsets = view.find_ints("data_offsets");
    if (offsets.size() != 2) fail(name, "data_offsets must be two integers");
    if (offsets[0] < 0 || offsets[1] < offsets[0])
      fail(name, "data_offsets [{}, {}] are not a range", offsets[0], offsets[1]);
    entry.begin = static_cast<uint64_t>(offsets[0]);
    entry.end = static_cast<uint64_t>(offsets[1]);
    if (entry.end > data_.size())
      fail(name, "data_offsets [{}, {}] run past the end of the file ({} bytes of data); it is truncated or damaged",
           entry.begin, entry.end, data_.size());
  }

  // The tensors, in order of their bytes, must cover the data from the first byte to the last.
  void check_layout() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
    });
    uint64_t at = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin < at) fail(entry.tensor.name, "its bytes overlap those of another tensor");
      if (entry.begin > at) fail(entry.tensor.name, "{} bytes before it belong to no tensor", entry.begin - at);
      at = entry.end;
    }
    if (at != data_.size())
      throw_error(ErrorKind::bad_file, "{}: the last {} bytes belong to no tensor", part_.file.name(),
                  data_.size() - at);
  }

  void keep(Entry& entry) {
    if (!entry.supported) {
      part_.unsupported.push_back(
          {entry.tensor.name, entry.stored, entry.tensor.shape, data_.subspan(entry.begin, entry.end - entry.begin)});
      return;
    }
    entry.tensor.data = data_.subspan(entry.begin, entry.end - entry.begin);
    part_.tensors.push_back(std::move(entry.tensor));
  }

  SafetensorsPart& part_;
  std::span<const std::byte> data_;
  std::vector<Entry> entries_;
};

}  // namespace

SafetensorsPart parse_safetensors_part(MappedFile file) {
  SafetensorsPart part;
  part.file = std::move(file);
  HeaderReader(part).parse();
  return part;
}

}  // namespace ingot
