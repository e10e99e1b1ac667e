#pragma once

#include <memory>
#include <string>

#include "formats/checkpoint.h"
#include "model/config.h"

namespace ingot {

// A checkpoint without files: every tensor that a model of this configuration has, under Hugging Face's names, so that
// speed and memory of a model can be measured without its weights. Matrices are random with a standard deviation of
// 0.02, norms are ones. Each is made when it is asked for, from its own place in one pattern of a few MiB, read round
// and round. The values are the same in every run.
//
// `dtype`: the format of the matrices. One that needs wider blocks than a matrix has columns gives way to q8_0, or to
// bf16 where that does not fit either; routers and tables of positions are always bf16 in a block format.
std::shared_ptr<Checkpoint> make_dummy_checkpoint(const ModelConfig& config, DType dtype);

}  // namespace ingot
