#include "formats/packed_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/ceil_div.h"
#include "core/error.h"
#include "core/half.h"
#include "core/printable.h"
#include "core/threads.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "formats/safetensors.h"

namespace ingot {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kChunkRows = 64;  // rows a thread unpacks at a time: a packed word may hold 8 of them

using Method = PackedFormat::Method;
using Words = std::span<const std::byte>;
using Unsupported = SafetensorsCheckpoint::Unsupported;

uint32_t load_word(Words words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words.data() + static_cast<size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

float load_float(const TensorView& tensor, int64_t index) {
  float value;
  const size_t size = dtype_bytes(tensor.dtype, 1);
  dequantize(tensor.dtype, tensor.data.data() + static_cast<size_t>(index) * size, 1, &value);
  return value;
}

constexpr const char* kNotSymmetric = "a zero point is not the middle level although config.json says sym";

// Which of a word's eight places AWQ gives to a row, by the row's number modulo eight.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// One packed matrix: [out, in] in levels, with a scale and an offset for each group of columns. Of a stack of experts,
// the one whose rows start at `first_row`.
struct PackedMatrix {
  Method method = Method::none;
  int bits = 4;
  int64_t group_size = 0;
  bool symmetric = false, zero_minus_one = true;
  int64_t out = 0, in = 0, first_row = 0;
  bool last = true;  // of its stack
  Words levels, zeros;
  Words order;                         // gptq with act-order: the group of each column; empty: in their order
  const TensorView* scales = nullptr;  // [groups, out]; mlx: [out, groups]
  const TensorView* biases = nullptr;  // mlx: [out, groups]

  int per_word() const { return 32 / bits; }
  uint32_t mask() const { return (1u << bits) - 1; }
  int64_t groups() const { return in / group_size; }
  uint32_t middle() const { return 1u << (bits - 1); }

  // The levels of 32 columns of `row` from `column` on.
  void read_levels(int64_t row, int64_t column, uint32_t* out_levels) const {
    const int n = per_word();
    if (method == Method::awq) {  // [in, out / 8]
      const int shift = kAwqPlace[row % 8] * 4;
      for (int64_t i = 0; i < kBlock; ++i)
        out_levels[i] = load_word(levels, (column + i) * (out / n) + row / n) >> shift & mask();
      return;
    }
    // mlx: [out, in / n]; gptq: [in / n, out]
    const int64_t start = method == Method::mlx ? (first_row + row) * (in / n) + column / n : column / n * out + row;
    const int64_t stride = method == Method::mlx ? 1 : out;
    for (int64_t i = 0; i < kBlock; ++i)
      out_levels[i] = load_word(levels, start + i / n * stride) >> (i % n * bits) & mask();
  }

  uint32_t zero(int64_t row, int64_t group) const {  // awq and gptq: [groups, out / n]
    const int n = per_word();
    const uint32_t word = load_word(zeros, group * (out / n) + row / n);
    if (method == Method::awq) return word >> (kAwqPlace[row % 8] * 4) & mask();
    return ((word >> (row % n * bits)) + (zero_minus_one ? 1 : 0)) & mask();
  }

  int64_t group_of(int64_t column) const {
    return order.empty() ? column / group_size : static_cast<int64_t>(load_word(order, column));
  }
  int64_t scale_index(int64_t row, int64_t group) const {
    return method == Method::mlx ? (first_row + row) * groups() + group : group * out + row;
  }
  float scale(int64_t row, int64_t group) const { return load_float(*scales, scale_index(row, group)); }
  float offset(int64_t row, int64_t group) const {  // of level 0
    if (method == Method::mlx) return load_float(*biases, scale_index(row, group));
    return -scale(row, group) * static_cast<float>(zero(row, group));
  }
};

void put_f16(std::byte* out, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(out, &half, sizeof(half));
}

void put_nibbles(std::byte* out, const uint32_t* levels) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<std::byte>(levels[i] | levels[i + 16] << 4);
}

// A router chooses: it is unpacked in full, lest the rounding of the products choose other experts.
bool is_router(std::string_view module) { return module.ends_with(".mlp.gate"); }

DType format_of(const PackedMatrix& m, std::string_view module) {
  if (is_router(module)) return DType::f32;
  if (m.bits == 8 || !m.order.empty()) return DType::q8_0;
  return m.symmetric ? DType::q4_0 : DType::q4_1;
}

// 32 columns of a row. False: a zero point is not what `symmetric` says.
bool write_block(const PackedMatrix& m, DType type, int64_t row, int64_t column, std::byte* out) {
  uint32_t levels[kBlock];
  m.read_levels(row, column, levels);
  const int64_t group = m.group_of(column);
  const bool exact = m.symmetric && m.order.empty();
  if (exact && m.zero(row, group) != m.middle()) return false;
  if (type == DType::q4_0 || type == DType::q4_1) {
    put_f16(out, m.scale(row, group));
    if (type == DType::q4_1) put_f16(out + 2, m.offset(row, group));
    put_nibbles(out + (type == DType::q4_1 ? 4 : 2), levels);
  } else if (type == DType::q8_0 && exact) {
    put_f16(out, m.scale(row, group));
    for (int64_t i = 0; i < kBlock; ++i) out[2 + i] = static_cast<std::byte>(static_cast<int>(levels[i]) - 128);
  } else {
    float values[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) {
      const int64_t g = m.group_of(column + i);
      values[i] = m.scale(row, g) * static_cast<float>(levels[i]) + m.offset(row, g);
    }
    quantize(type, values, kBlock, out);
  }
  return true;
}

[[noreturn]] void fail_tensor(const Checkpoint& checkpoint, std::string_view name, const std::string& what) {
  throw_error(ErrorKind::bad_file, "{}: tensor {}: {}", checkpoint.describe(), printable(name), what);
}

void unpack_matrix(const PackedMatrix& m, const TensorView& tensor, const Checkpoint& source, std::byte* out,
                   ThreadPool& pool) {
  const size_t block_bytes = dtype_bytes(tensor.dtype, kBlock);
  const size_t row_bytes = dtype_bytes(tensor.dtype, static_cast<size_t>(m.in));
  std::atomic<bool> whole = true;
  pool.run([&](Worker& worker) {
    worker.share(ceil_div(m.out, kChunkRows), [&](int64_t chunk) {
      const int64_t end = std::min(m.out, (chunk + 1) * kChunkRows);
      for (int64_t column = 0; column < m.in; column += kBlock)
        for (int64_t row = chunk * kChunkRows; row < end; ++row)
          if (!write_block(
                  m, tensor.dtype, row, column,
                  out + static_cast<size_t>(row) * row_bytes + static_cast<size_t>(column / kBlock) * block_bytes))
            whole = false;
    });
  });
  if (!whole) fail_tensor(source, tensor.name, kNotSymmetric);
  if (m.last) source.drop_pages(m.levels);
}

// Fills in a checkpoint with the matrices of `source`, then with what is not packed.
class Unpacker {
 public:
  Unpacker(const SafetensorsCheckpoint& source, const PackedFormat& format, ComputedCheckpoint& result)
      : source_(source), format_(format), result_(result) {
    for (const Unsupported& tensor : source.unsupported()) words_.emplace(tensor.name, &tensor);
    for (const TensorView& tensor : source.tensors()) plain_.insert(tensor.name);
    const std::string_view ending = format.method == Method::mlx ? ".weight" : ".qweight";
    for (const Unsupported& tensor : source.unsupported())
      if (tensor.name.ends_with(ending)) add(tensor, tensor.name.substr(0, tensor.name.size() - ending.size()));
    for (const TensorView& tensor : source.tensors())
      if (!used_.contains(tensor.name)) result.add(tensor);
  }

 private:
  [[noreturn]] void fail(std::string_view name, const std::string& what) const { fail_tensor(source_, name, what); }

  Words words(const std::string& name, const std::vector<int64_t>& shape) const {
    const auto found = words_.find(name);
    if (found == words_.end()) fail(name, "is missing from the file, or no list of 32-bit words");
    const Unsupported& tensor = *found->second;
    if (tensor.shape != shape || (tensor.dtype != "I32" && tensor.dtype != "U32"))
      fail(name, fmt::format("is {} [{}], expected 32-bit words [{}]", tensor.dtype, fmt::join(tensor.shape, ", "),
                             fmt::join(shape, ", ")));
    return tensor.data;
  }

  const TensorView* floats(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView& tensor = source_.get(name);
    if (tensor.shape != shape)
      fail(name,
           fmt::format("its shape is [{}], expected [{}]", fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
    used_.insert(name);
    return &tensor;
  }

  void add(const Unsupported& tensor, const std::string& module) {
    const bool mlx = format_.method == Method::mlx;
    if (mlx && !plain_.contains(module + ".scales")) return;  // some other integers: declined when they are asked for
    const auto own = format_.modules.find(module);
    const PackedFormat::Width& width = own == format_.modules.end() ? format_.width : own->second;
    PackedMatrix m;
    m.method = format_.method;
    m.bits = width.bits;
    m.symmetric = format_.symmetric;
    m.zero_minus_one = format_.zero_minus_one;
    const int n = m.per_word();
    const size_t dims = tensor.shape.size();
    if (dims != 2 && !(mlx && dims == 3)) fail(tensor.name, fmt::format("has {} dimensions, expected 2", dims));
    const int64_t experts = dims == 3 ? tensor.shape[0] : 1;
    const int64_t rows = tensor.shape[dims - 2], cols = tensor.shape[dims - 1];
    m.out = mlx ? rows : format_.method == Method::awq ? cols * n : cols;
    m.in = mlx ? cols * n : format_.method == Method::awq ? rows : rows * n;
    m.group_size = width.group_size < 0 ? m.in : width.group_size;
    if (m.in < 1 || m.out < 1 || m.in % kBlock != 0 || m.in % m.group_size != 0)
      fail(tensor.name, fmt::format("{} columns are no multiple of the group of {}", m.in, m.group_size));
    if (!mlx && m.out % n != 0) fail(tensor.name, fmt::format("{} rows are no multiple of {}", m.out, n));
    m.levels = words(tensor.name, tensor.shape);
    if (mlx) {
      std::vector<int64_t> grouped = tensor.shape;
      grouped.back() = m.groups();
      m.scales = floats(module + ".scales", grouped);
      m.biases = floats(module + ".biases", grouped);
    } else {
      m.scales = floats(module + ".scales", {m.groups(), m.out});
      m.zeros = words(module + ".qzeros", {m.groups(), m.out / n});
    }
    if (format_.method == Method::gptq) read_order(m, module + ".g_idx");
    // The others are looked at when the matrix is computed.
    for (int64_t row = 0; m.symmetric && row < m.out; ++row)
      if (m.zero(row, 0) != m.middle()) fail(module + ".weight", kNotSymmetric);
    if (dims == 2) return offer(module, m);
    // mlx-lm stacks what the hub has one by one.
    constexpr std::string_view kStack = ".switch_mlp.";
    const size_t stack = module.find(kStack);
    if (stack == std::string::npos) fail(tensor.name, "has 3 dimensions, expected 2");
    for (int64_t e = 0; e < experts; ++e, m.first_row += m.out) {
      m.last = e == experts - 1;
      offer(fmt::format("{}.experts.{}.{}", module.substr(0, stack), e, module.substr(stack + kStack.size())), m);
    }
  }

  void offer(const std::string& module, const PackedMatrix& m) {
    const TensorView tensor{module + ".weight", format_of(m, module), {m.out, m.in}, {}};
    if (result_.find(tensor.name) != nullptr) fail(tensor.name, "is in the file twice");
    result_.add(tensor, [m, tensor, &source = source_](std::byte* out, ThreadPool& pool) {
      unpack_matrix(m, tensor, source, out, pool);
    });
  }

  // g_idx may be left out; mostly it says what is so anyway.
  void read_order(PackedMatrix& m, const std::string& name) const {
    if (!words_.contains(name)) return;
    const Words order = words(name, {m.in});
    for (int64_t i = 0; i < m.in; ++i) {
      const auto group = static_cast<int64_t>(load_word(order, i));
      if (group >= m.groups()) fail(name, fmt::format("names group {} of {}", group, m.groups()));
      if (group != i / m.group_size) m.order = order;
    }
  }

  const SafetensorsCheckpoint& source_;
  const PackedFormat& format_;
  ComputedCheckpoint& result_;
  std::unordered_map<std::string_view, const Unsupported*> words_;
  std::set<std::string, std::less<>> used_;  // scales and biases, which are part of a matrix
  std::unordered_set<std::string> plain_;
};

}  // namespace

std::shared_ptr<Checkpoint> unpack_checkpoint(std::shared_ptr<const SafetensorsCheckpoint> source,
                                              const PackedFormat& format, int threads) {
  auto unpacked = std::make_shared<ComputedCheckpoint>(source, threads);
  Unpacker(*source, format, *unpacked);
  return unpacked;
}

}  // namespace ingot
