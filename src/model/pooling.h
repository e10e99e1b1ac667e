#pragma once

#include <filesystem>
#include <memory>

#include "model/config.h"

namespace ingot {

class Checkpoint;
class GgufKeys;
class JsonView;

// What a model's files say about texts as vectors, and about rating documents for a query. Into `config`.
void read_pooling(const std::filesystem::path& dir, const JsonView& json,
                  ModelConfig& config);                        // sentence-transformers
void read_pooling(const GgufKeys& keys, ModelConfig& config);  // NAME.pooling_type

int64_t gguf_pooling_type(Pooling::Kind kind);  // its number

// Embedding models are often saved without the wrapper that makes text: "layers.0..." in place of "model.layers.0...",
// and no head. This is such a checkpoint under the usual names; others are handed back. `config` learns of a missing
// head.
std::shared_ptr<Checkpoint> with_wrapper_names(std::shared_ptr<Checkpoint> checkpoint, ModelConfig& config);

}  // namespace ingot
