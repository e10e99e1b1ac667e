#pragma once

#include <memory>
#include <string>

#include "formats/checkpoint.h"
#include "formats/gguf_write.h"
#include "model/config.h"

namespace ingot {

// A Hugging Face model as a GGUF file has it, but for the tokenizer.
struct GgufExport {
  GgufValues values;
  std::shared_ptr<Checkpoint> checkpoint;  // in GGUF's names, shapes and order of rows
};

// `source` may have computed tensors: quantized ones stay as they are, row for row. Vectors, routers and tables of
// positions become f32. Throws declined for a setting that the architecture's GGUF metadata cannot say, as read back by
// us.
GgufExport export_gguf(std::shared_ptr<const Checkpoint> source, const ModelConfig& config);

// The configuration alone. As GGUF's metadata; what its architecture has no key for is left out.
GgufValues write_gguf_config(const ModelConfig& config);
// As config.json, for weights in f16. Llama 3's stretched frequencies are left out when they came from a GGUF file,
// which holds nothing but their result.
std::string write_hf_config(const ModelConfig& config);

}  // namespace ingot
