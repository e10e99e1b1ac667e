#include "formats/packed_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/ceil_div.h"
#include "core/error.h"
#include "core/half.h"
#include "core/threads.h"
#include "formats/block_quant.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace ingot {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kChunkRows = 64;  // rows a thread unpacks at a time: packed words hold up to 8 of them

using Method = PackedFormat::Method;
using Unsupported = SafetensorsCheckpoint::Unsupported;

uint32_t load_word(std::span<const std::byte> data, int64_t index) {
  uint32_t word;
  std::memcpy(&word, data.data() + static_cast<size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

float load_float(const TensorView& tensor, int64_t index) {
  float value;
  const size_t size = dtype_bytes(tensor.dtype, 1);
  dequantize(tensor.dtype, tensor.data.data() + static_cast<size_t>(index) * size, 1, &value);
  return value;
}

// Where AWQ keeps the eight outputs of a word.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// One packed matrix: [out, in] in codes, with a scale and an offset for each group of columns.
struct PackedMatrix {
  PackedFormat format;
  int64_t out = 0, in = 0;
  std::span<const std::byte> codes, zeros, order;  // words
  const TensorView* scales = nullptr;
  const TensorView* biases = nullptr;  // mlx

  int per_word() const { return 32 / format.bits; }
  uint32_t mask() const { return format.bits == 8 ? 255u : 15u; }
  int64_t groups() const { return in / format.group_size; }

  // The code of `column` of `row`.
  uint32_t code(int64_t row, int64_t column) const {
    const int n = per_word();
    switch (format.method) {
      case Method::mlx: {  // [out, in / n]
        const uint32_t word = load_word(codes, row * (in / n) + column / n);
        return word >> (column % n * format.bits) & mask();
      }
      case Method::gptq: {  // [in / n, out]
        const uint32_t word = load_word(codes, column / n * out + row);
        return word >> (column % n * format.bits) & mask();
      }
      default: {  // [in, out / 8]
        const uint32_t word = load_word(codes, column * (out / 8) + row / 8);
        return word >> (kAwqPlace[row % 8] * 4) & mask();
      }
    }
  }

  uint32_t zero(int64_t row, int64_t group) const {  // [groups, out / n]
    const int n = per_word();
    const uint32_t word = load_word(zeros, group * (out / n) + row / n);
    if (format.method == Method::awq) return word >> (kAwqPlace[row % 8] * 4) & mask();
    return (word >> (row % n * format.bits) & mask()) + (format.zero_minus_one ? 1 : 0);
  }

  int64_t group_of(int64_t column) const {
    return order.empty() ? column / format.group_size : static_cast<int64_t>(load_word(order, column));
  }
  float scale(int64_t row, int64_t group) const {
    return load_float(*scales, format.method == Method::mlx ? row * groups() + group : group * out + row);
  }
  float offset(int64_t row, int64_t group) const {  // of level 0
    if (format.method == Method::mlx) return load_float(*biases, row * groups() + group);
    return -scale(row, group) * static_cast<float>(zero(row, group));
  }
};

void put_f16(std::byte* out, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(out, &half, sizeof(half));
}

void put_nibbles(std::byte* out, const uint32_t* codes) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<std::byte>(codes[i] | codes[i + 16] << 4);
}

DType format_of(const PackedFormat& format) {
  if (format.bits == 8 || format.reordered) return DType::q8_0;
  return format.symmetric ? DType::q4_0 : DType::q4_1;
}

// 32 columns of a row that share a group. False: a zero point is not what `symmetric` says.
bool write_block(const PackedMatrix& m, int64_t row, int64_t column, std::byte* out) {
  uint32_t codes[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) codes[i] = m.code(row, column + i);
  const bool exact = m.format.symmetric && !m.format.reordered;
  const int64_t group = m.group_of(column);
  if (exact && m.zero(row, group) != (1u << (m.format.bits - 1))) return false;
  if (m.format.bits == 4 && !m.format.reordered) {
    put_f16(out, m.scale(row, group));
    if (!exact) put_f16(out + 2, m.offset(row, group));
    put_nibbles(out + (exact ? 2 : 4), codes);
  } else if (exact) {
    put_f16(out, m.scale(row, group));
    for (int64_t i = 0; i < kBlock; ++i) out[2 + i] = static_cast<std::byte>(static_cast<int>(codes[i]) - 128);
  } else {
    float values[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) {
      const int64_t g = m.group_of(column + i);
      values[i] = m.scale(row, g) * static_cast<float>(codes[i]) + m.offset(row, g);
    }
    quantize(DType::q8_0, values, kBlock, out);
  }
  return true;
}

class UnpackedCheckpoint : public Checkpoint {
 public:
  UnpackedCheckpoint(std::shared_ptr<const SafetensorsCheckpoint> source, const PackedFormat& format, int threads)
      : source_(std::move(source)), format_(format), threads_(threads > 0 ? threads : ThreadPool::available_cpus()) {
    const std::string_view ending = format.method == Method::mlx ? ".weight" : ".qweight";
    for (const Unsupported& packed : source_->unsupported())
      if (packed.name.ends_with(ending)) add(packed, packed.name.substr(0, packed.name.size() - ending.size()));
    for (const TensorView& tensor : source_->tensors())
      if (!std::binary_search(used_.begin(), used_.end(), tensor.name)) tensors_.push_back(tensor);
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  }

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? source_->find(name) : &tensors_[found->second];
  }
  uint64_t file_bytes() const override { return source_->file_bytes(); }
  void drop_pages(std::span<const std::byte> bytes) const override { source_->drop_pages(bytes); }
  std::string describe() const override { return source_->describe(); }

  void make(const TensorView& tensor, std::byte* out) const override {
    const PackedMatrix& m = packed_.at(tensor.name);
    const DType type = format_of(format_);
    const size_t block_bytes = dtype_bytes(type, kBlock), row_bytes = dtype_bytes(type, static_cast<size_t>(m.in));
    if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(threads_);
    std::atomic<bool> whole = true;
    pool_->run([&](Worker& worker) {
      worker.share(ceil_div(m.out, kChunkRows), [&](int64_t chunk) {
        const int64_t end = std::min(m.out, (chunk + 1) * kChunkRows);
        for (int64_t column = 0; column < m.in; column += kBlock)
          for (int64_t row = chunk * kChunkRows; row < end; ++row)
            if (!write_block(m, row, column,
                             out + static_cast<size_t>(row) * row_bytes +
                                 static_cast<size_t>(column / kBlock) * block_bytes))
              whole = false;
      });
    });
    if (!whole)
      throw_error(ErrorKind::bad_file, "{}: tensor {}: a zero point is not the middle although sym is true", describe(),
                  printable(tensor.name));
    source_->drop_pages(m.codes);
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw_error(ErrorKind::bad_file, "{}: tensor {}: {}", describe(), printable(name), what);
  }

  std::span<const std::byte> words(const std::string& name, const std::vector<int64_t>& shape) const {
    for (const Unsupported& tensor : source_->unsupported())
      if (tensor.name == name) {
        if (tensor.shape != shape || (tensor.dtype != "I32" && tensor.dtype != "U32"))
          fail(name, fmt::format("is {} [{}], expected 32-bit words [{}]", tensor.dtype,
                                 fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
        return tensor.data;
      }
    fail(name, "is missing from the file");
  }

  const TensorView* floats(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView& tensor = source_->get(name);
    if (tensor.shape != shape)
      fail(name, fmt::format("its shape is [{}], expected [{}]", fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
    used_.insert(std::upper_bound(used_.begin(), used_.end(), name), name);
    return &tensor;
  }

  void add(const Unsupported& packed, const std::string& base) {
    PackedMatrix m;
    m.format = format_;
    const int n = m.per_word();
    if (packed.shape.size() != 2) fail(packed.name, "is no matrix");
    const bool mlx = format_.method == Method::mlx, awq = format_.method == Method::awq;
    m.out = mlx ? packed.shape[0] : awq ? packed.shape[1] * n : packed.shape[1];
    m.in = mlx ? packed.shape[1] * n : awq ? packed.shape[0] : packed.shape[0] * n;
    if (m.in < 1 || m.out < 1 || m.in % format_.group_size != 0 || m.out % (mlx ? 1 : n) != 0)
      fail(packed.name, fmt::format("{} columns are no multiple of the group of {}", m.in, format_.group_size));
    m.codes = words(packed.name, packed.shape);
    const std::vector<int64_t> grouped = mlx ? std::vector{m.out, m.groups()} : std::vector{m.groups(), m.out};
    m.scales = floats(base + ".scales", grouped);
    if (mlx)
      m.biases = floats(base + ".biases", grouped);
    else
      m.zeros = words(base + ".qzeros", {m.groups(), m.out / n});
    if (format_.method == Method::gptq) read_order(m, base + ".g_idx");
    TensorView tensor{base + ".weight", format_of(format_), {m.out, m.in}, {}};
    tensor.data = made_bytes(dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements())));
    packed_.emplace(tensor.name, m);
    tensors_.push_back(std::move(tensor));
  }

  // g_idx may be left out where it says nothing.
  void read_order(PackedMatrix& m, const std::string& name) const {
    const auto& all = source_->unsupported();
    if (std::none_of(all.begin(), all.end(), [&](const Unsupported& tensor) { return tensor.name == name; })) return;
    const std::span<const std::byte> order = words(name, {m.in});
    for (int64_t i = 0; i < m.in; ++i) {
      const auto group = static_cast<int64_t>(load_word(order, i));
      if (group >= m.groups()) fail(name, fmt::format("names group {} of {}", group, m.groups()));
      if (group != i / m.format.group_size && !m.format.reordered)
        fail(name, "groups columns out of order although desc_act is false");
    }
    m.order = order;
  }

  std::shared_ptr<const SafetensorsCheckpoint> source_;
  PackedFormat format_;
  int threads_;
  mutable std::unique_ptr<ThreadPool> pool_;  // started by the first tensor made
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, PackedMatrix, std::less<>> packed_;
  std::vector<std::string> used_;  // sorted; scales and biases, which are part of a matrix
};

}  // namespace

std::shared_ptr<Checkpoint> unpack_checkpoint(std::shared_ptr<const SafetensorsCheckpoint> source,
                                              const PackedFormat& format, int threads) {
  return std::make_shared<UnpackedCheckpoint>(std::move(source), format, threads);
}

}  // namespace ingot
