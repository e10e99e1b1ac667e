#pragma once

#include <memory>

#include "backend/op.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/layout.h"

namespace ingot {

// The embedding of a model (and its positions), read from its files row by row. What was read stays in the system's
// cache of files as long as there is room, and in no memory of ours.
std::unique_ptr<RowTable> file_table(std::shared_ptr<const Checkpoint> checkpoint, const ModelConfig& config,
                                     NameStyle style);

// Rows of one tensor of a checkpoint, likewise: without positions.
std::unique_ptr<RowTable> tensor_table(std::shared_ptr<const Checkpoint> checkpoint, const TensorView& tensor);

}  // namespace ingot
