#pragma once

#include <memory>

#include "formats/safetensors.h"
#include "model/config.h"

namespace ingot {

// The files of a head, under one set of names for what has been published under several; its table of tokens goes to
// `config`. Throws bad_file where that names tokens which the model does not have.
std::shared_ptr<Checkpoint> adapt_head(const std::shared_ptr<SafetensorsCheckpoint>& stored, ModelConfig& config);

}  // namespace ingot
