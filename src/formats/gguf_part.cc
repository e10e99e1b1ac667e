#include "formats/gguf_part.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/printable.h"

namespace ingot {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 1024;
constexpr int64_t kMaxAlignment = int64_t{1} << 24;

size_t fixed_size(uint32_t type) {  // bytes of one value; 0 for strings, arrays and unknown types
  switch (type) {
    case gguf_value::u8:
    case gguf_value::i8:
    case gguf_value::boolean: return 1;
    case gguf_value::u16:
    case gguf_value::i16: return 2;
    case gguf_value::u32:
    case gguf_value::i32:
    case gguf_value::f32: return 4;
    case gguf_value::u64:
    case gguf_value::i64:
    case gguf_value::f64: return 8;
    default: return 0;
  }
}

// Types that are not read, for the error to name them.
struct OtherType {
  uint32_t number;
  std::string_view name;
};
constexpr OtherType kOtherTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"},
    {22, "IQ2_S"}, {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},   {28, "F64"},
    {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"},  {40, "NVFP4"},
};
constexpr bool some_other_type_is_read() {
  for (const OtherType& other : kOtherTypes)
    for (const DTypeInfo& info : kDTypes)
      if (other.number == info.gguf_type) return true;
  return false;
}
static_assert(!some_other_type_is_read());

std::string supported_types() {
  std::string names;
  for (const DTypeInfo& info : kDTypes) {
    if (!names.empty()) names += ", ";
    for (const char c : info.name) names += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return names;
}

class Parser {
 public:
  explicit Parser(GgufPart& part) : part_(part), bytes_(part.file.bytes()) {}

  void parse() {
    parse_header();
    for (uint64_t i = 0; i < num_values_; ++i) parse_value(i);
    read_alignment();
    parse_tensor_table();
    place_tensors();
  }

 private:
  // What the cursor is inside of, put into words only when something fails.
  struct Context {
    std::string_view kind;  // "key", "tensor", "header"
    std::string_view name;
    uint64_t index = 0;
  };

  std::string where() const {
    if (context_.kind == "header") return "header";
    if (context_.name.empty()) return fmt::format("{} number {}", context_.kind, context_.index);
    return fmt::format("{} {}", context_.kind, printable(context_.name));
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error(ErrorKind::bad_file, "{}: {}: {}", part_.file.name(), where(),
                fmt::format(format, std::forward<Args>(args)...));
  }

  size_t remaining() const { return bytes_.size() - at_; }

  void need(uint64_t count) const {
    if (count > remaining())
      fail("needs {} bytes at byte {} but the file ends at byte {}; it is truncated or damaged", count, at_,
           bytes_.size());
  }

  template <typename T>
  T read() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string_view read_string(uint64_t limit = std::numeric_limits<uint64_t>::max()) {
    const uint64_t length = read<uint64_t>();
    if (length > limit) fail("a name of {} bytes is longer than the {} allowed", length, limit);
    need(length);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }

  void parse_header() {
    context_ = {.kind = "header", .name = {}, .index = 0};
    const uint32_t magic = read<uint32_t>();
    if (magic == __builtin_bswap32(kMagic)) fail("is big-endian GGUF; only little-endian files are read");
    if (magic != kMagic) fail("does not start with GGUF; it is not a GGUF model file");
    part_.version = read<uint32_t>();
    if (part_.version == 0x02000000 || part_.version == 0x03000000)
      fail("is big-endian GGUF; only little-endian files are read");
    if (part_.version != 2 && part_.version != 3)
      fail("GGUF version {} is not read, only versions 2 and 3", part_.version);
    num_tensors_ = read<uint64_t>();
    num_values_ = read<uint64_t>();
    // The smallest key-value pair has 8 + 4 + 1 bytes, the smallest tensor entry 8 + 4 + 8 + 4 + 8.
    if (num_values_ > remaining() / 13)
      fail("claims {} metadata values, more than a file of {} bytes can hold", num_values_, bytes_.size());
    if (num_tensors_ > remaining() / 32)
      fail("claims {} tensors, more than a file of {} bytes can hold", num_tensors_, bytes_.size());
  }

  void parse_value(uint64_t index) {
    context_ = {.kind = "key", .name = {}, .index = index};
    const size_t start = at_;
    const std::string_view key = read_string(kMaxKeyBytes);
    if (key.empty()) fail("has an empty name");
    context_.name = key;
    const uint32_t type = read<uint32_t>();
    GgufValue value = type == gguf_value::array ? read_array() : read_scalar(type);
    if (!part_.values.emplace(std::string(key), std::move(value)).second) fail("appears twice");
    part_.raw_values.push_back({key, bytes_.subspan(start, at_ - start)});
  }

  GgufValue read_scalar(uint32_t type) {
    if (type == gguf_value::string) return read_string();
    if (type == gguf_value::boolean) return read_bool();
    if (type == gguf_value::f32) return static_cast<double>(read<float>());
    if (type == gguf_value::f64) return read<double>();
    return read_integer(type);
  }

  bool read_bool() {
    const uint8_t value = read<uint8_t>();
    if (value > 1) fail("a truth value must be 0 or 1, got {}", value);
    return value == 1;
  }

  int64_t read_integer(uint32_t type) {
    switch (type) {
      case gguf_value::u8: return read<uint8_t>();
      case gguf_value::i8: return read<int8_t>();
      case gguf_value::u16: return read<uint16_t>();
      case gguf_value::i16: return read<int16_t>();
      case gguf_value::u32: return read<uint32_t>();
      case gguf_value::i32: return read<int32_t>();
      case gguf_value::i64: return read<int64_t>();
      case gguf_value::u64: {
        const uint64_t value = read<uint64_t>();
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
          fail("the value {} is too large", value);
        return static_cast<int64_t>(value);
      }
      default: fail("has the unknown value type {}", type);
    }
  }

  GgufValue read_array() {
    const uint32_t type = read<uint32_t>();
    const uint64_t count = read<uint64_t>();
    if (type == gguf_value::array) fail("is an array of arrays, which no model needs");
    const size_t smallest = type == gguf_value::string ? 8 : fixed_size(type);
    if (smallest == 0) fail("is an array of the unknown value type {}", type);
    // Before anything is allocated for it.
    if (count > remaining() / smallest)
      fail("claims {} elements but only {} bytes of the file are left; it is truncated or damaged", count, remaining());

    if (type == gguf_value::string) {
      std::vector<std::string_view> strings;
      strings.reserve(count);
      for (uint64_t i = 0; i < count; ++i) strings.push_back(read_string());
      return strings;
    }
    if (type == gguf_value::f32 || type == gguf_value::f64) {
      std::vector<double> doubles;
      doubles.reserve(count);
      for (uint64_t i = 0; i < count; ++i) doubles.push_back(type == gguf_value::f32 ? read<float>() : read<double>());
      return doubles;
    }
    std::vector<int64_t> integers;
    integers.reserve(count);
    for (uint64_t i = 0; i < count; ++i)
      integers.push_back(type == gguf_value::boolean ? read_bool() : read_integer(type));
    return integers;
  }

  void read_alignment() {
    const auto found = part_.values.find("general.alignment");
    if (found == part_.values.end()) return;
    context_ = {.kind = "key", .name = found->first, .index = 0};
    const int64_t* value = std::get_if<int64_t>(&found->second);
    if (value == nullptr) fail("must be an integer");
    if (*value < 8 || *value > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(*value)))
      fail("must be a power of two from 8 to {}, got {}", kMaxAlignment, *value);
    alignment_ = static_cast<uint64_t>(*value);
  }

  void parse_tensor_table() {
    std::unordered_set<std::string_view> seen;
    part_.tensors.reserve(num_tensors_);
    offsets_.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      context_ = {.kind = "tensor", .name = {}, .index = i};
      const std::string_view name = read_string(kMaxNameBytes);
      if (name.empty()) fail("has an empty name");
      context_.name = name;
      if (!seen.insert(name).second) fail("appears twice");
      parse_tensor(name);
    }
  }

  void parse_tensor(std::string_view name) {
    TensorView tensor;
    tensor.name = name;
    const uint32_t dims = read<uint32_t>();
    if (dims == 0 || dims > kMaxDims) fail("has {} dimensions, 1 to {} are allowed", dims, kMaxDims);
    int64_t elements = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const uint64_t size = read<uint64_t>();
      if (size == 0) fail("dimension {} is 0", d);
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
          __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements))
        fail("its dimensions overflow");
      tensor.shape.push_back(static_cast<int64_t>(size));
    }
    const int64_t row = tensor.shape.front();
    std::reverse(tensor.shape.begin(), tensor.shape.end());  // the file has the innermost dimension first

    tensor.dtype = tensor_dtype(read<uint32_t>());
    const DTypeInfo& info = dtype_info(tensor.dtype);
    if (row % info.block_size != 0)
      fail("its rows of {} elements are not whole {} blocks of {}", row, info.name, info.block_size);
    const uint64_t blocks = static_cast<uint64_t>(elements / info.block_size);
    if (blocks > bytes_.size() / static_cast<uint64_t>(info.block_bytes))
      fail("its {} elements of {} cannot fit in a file of {} bytes", elements, info.name, bytes_.size());
    tensor.data = bytes_.first(blocks * static_cast<uint64_t>(info.block_bytes));  // the length; placed later
    offsets_.push_back(read<uint64_t>());
    if (offsets_.back() % alignment_ != 0)
      fail("its offset {} is not a multiple of the alignment {}", offsets_.back(), alignment_);
    part_.tensors.push_back(std::move(tensor));
  }

  DType tensor_dtype(uint32_t number) const {
    for (const DTypeInfo& info : kDTypes)
      if (info.gguf_type == number) return info.type;
    for (const OtherType& other : kOtherTypes)
      if (other.number == number)
        throw_error(ErrorKind::declined, "{}: {} has type {}, which is not supported; supported are {}",
                    part_.file.name(), where(), other.name, supported_types());
    fail("has the unknown type number {}; supported are {}", number, supported_types());
  }

  // The tensors' bytes start at the next multiple of the alignment after the table.
  void place_tensors() {
    if (part_.tensors.empty()) return;
    const uint64_t start = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t space = start > bytes_.size() ? 0 : bytes_.size() - start;
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      TensorView& tensor = part_.tensors[i];
      context_ = {.kind = "tensor", .name = tensor.name, .index = i};
      const uint64_t size = tensor.data.size();
      if (offsets_[i] > space || size > space - offsets_[i])
        fail(
            "its {} bytes at offset {} run past the end of the file ({} bytes of tensor data); it is truncated or "
            "damaged",
            size, offsets_[i], space);
      tensor.data = bytes_.subspan(start + offsets_[i], size);
    }
    refuse_overlaps();
  }

  void refuse_overlaps() {
    std::vector<size_t> order(part_.tensors.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const size_t before = order[i - 1];
      const TensorView& tensor = part_.tensors[order[i]];
      if (offsets_[before] + part_.tensors[before].data.size() <= offsets_[order[i]]) continue;
      context_ = {.kind = "tensor", .name = tensor.name, .index = order[i]};
      fail("its bytes overlap those of tensor {}", printable(part_.tensors[before].name));
    }
  }

  GgufPart& part_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  Context context_;
  uint64_t num_tensors_ = 0;
  uint64_t num_values_ = 0;
  uint64_t alignment_ = kGgufAlignment;
  std::vector<uint64_t> offsets_;  // of each tensor, from the start of the tensor data
};

}  // namespace

GgufPart parse_gguf_part(MappedFile file) {
  GgufPart part;
  part.file = std::move(file);
  Parser(part).parse();
  return part;
}

}  // namespace ingot
