#pragma once

#include <memory>

#include "formats/checkpoint.h"
#include "formats/gguf_write.h"
#include "model/config.h"

namespace ingot {

// A Hugging Face model as a GGUF file has it, but for the tokenizer.
struct GgufExport {
  GgufValues values;
  std::shared_ptr<Checkpoint> checkpoint;  // in GGUF's names, shapes and order of rows
};

// `source` may have made tensors: quantized ones stay as they are, row for row. Vectors, routers and tables of
// positions become f32. Throws declined for a setting that the architecture's GGUF metadata cannot say, as read back by
// us.
GgufExport export_gguf(std::shared_ptr<const Checkpoint> source, const ModelConfig& config);

}  // namespace ingot
