#include <nlohmann/json.hpp>

#include "formats/json.h"
#include "model/families/family.h"

namespace ingot {
namespace {

void read_mistral_hf(const JsonView& json, ModelConfig& config) {
  // null turns the window off
  const int64_t window = json.value().contains("sliding_window") ? json.find_int("sliding_window").value_or(0) : 4096;
  read_windows(json, window, [window](int64_t) { return window > 0; }, config);
}

}  // namespace

const Family families::mistral = {.hf = "MistralForCausalLM",
                                  .model_type = "mistral",
                                  .gguf = "llama",
                                  .reads_gguf = false,
                                  .base = {.kv_heads = 8, .max_position = 131072},
                                  .read_hf = read_mistral_hf};

}  // namespace ingot
