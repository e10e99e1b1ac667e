// Any bytes as a safetensors file.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const auto file = SafetensorsCheckpoint::open_bytes({reinterpret_cast<const std::byte*>(data), size});
    for (const TensorView& tensor : file->tensors()) {
      if (tensor.data.size() != dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements()))) __builtin_trap();
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      dequantize(tensor.dtype, tensor.data.data(), values.size(), values.data());
    }
  } catch (const Error&) {
    // refused
  }
  return 0;
}
