// Any bytes as a GGUF file: parse, read the configuration, read every tensor that claims to be there.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/gguf.h"
#include "model/config_read.h"
#include "model/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const auto file = GgufFile::open_bytes({reinterpret_cast<const std::byte*>(data), size});
    for (const TensorView& tensor : file->tensors()) {
      if (tensor.data.size() != dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements()))) __builtin_trap();
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      dequantize(tensor.dtype, tensor.data.data(), values.size(), values.data());
    }
    const ModelConfig config = read_config(*file);
    (void)rope_inv_freq(config);
    (void)rope_attention_factor(config);
  } catch (const Error&) {
    // refused, which is what most inputs deserve
  }
  return 0;
}
