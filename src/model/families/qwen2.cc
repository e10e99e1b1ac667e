#include "model/families/family.h"

namespace ingot {

const Family families::qwen2 = {.hf = "Qwen2ForCausalLM",
                                .model_type = "qwen2",
                                .gguf = "qwen2",
                                .base = {.max_position = 32768, .attention_bias = true},
                                .read_hf = read_late_windows};

}  // namespace ingot
