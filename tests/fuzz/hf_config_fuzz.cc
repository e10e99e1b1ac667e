// Any text as config.json and, after a NUL byte, generation_config.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "model/config_read.h"
#include "model/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  const std::string_view generation = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  try {
    const ModelConfig config = read_hf_config_text(text.substr(0, end), generation);
    // What passed the checks must be usable: table sizes and head maps are computed from it.
    if (config.heads % config.kv_heads != 0 || config.rope_dims % 2 != 0) __builtin_trap();
    for (float frequency : rope_inv_freq(config))
      if (!(frequency >= 0)) __builtin_trap();
    if (!(rope_attention_factor(config) > 0)) __builtin_trap();
  } catch (const Error&) {
    // refused
  }
  return 0;
}
