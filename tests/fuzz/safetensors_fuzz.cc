// Any bytes as a safetensors file, and its words as matrices that others packed.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "formats/packed_weights.h"
#include "formats/safetensors.h"

namespace {

// As every method says in turn: the last byte of the file chooses the rest.
void unpack(const std::shared_ptr<ingot::SafetensorsCheckpoint>& file, uint8_t choice) {
  using namespace ingot;
  for (const auto method : {PackedFormat::Method::awq, PackedFormat::Method::gptq, PackedFormat::Method::mlx}) {
    PackedFormat format{.method = method, .width = {(choice & 1) ? 8 : 4, (choice & 2) ? 32 : -1}};
    format.symmetric = choice & 4;
    if (method == PackedFormat::Method::awq) format.width.bits = 4;
    try {
      const std::shared_ptr<Checkpoint> unpacked = unpack_checkpoint(file, format, 1);
      for (const TensorView& tensor : unpacked->tensors())
        if (tensor.is_computed()) unpacked->compute(tensor);
    } catch (const Error&) {
      // refused
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const auto file = SafetensorsCheckpoint::open_bytes({reinterpret_cast<const std::byte*>(data), size});
    for (const TensorView& tensor : file->tensors()) {
      if (tensor.data.size() != dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements()))) __builtin_trap();
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      dequantize(tensor.dtype, tensor.data.data(), values.size(), values.data());
    }
    if (!file->unsupported().empty()) unpack(file, data[size - 1]);
  } catch (const Error&) {
    // refused
  }
  return 0;
}
