#include "model/families/family.h"

namespace ingot {

const Family families::qwen3 = {.hf = "Qwen3ForCausalLM",
                                .model_type = "qwen3",
                                .gguf = "qwen3",
                                .base = {.head_size = 128, .max_position = 32768, .qk_norm = true},
                                .settings = {kOutputBias, kAttentionBias},
                                .read_hf = read_late_windows};

}  // namespace ingot
