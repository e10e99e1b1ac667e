#pragma once

#include <cstdint>
#include <vector>

#include "cli/common.h"

namespace ingot::cli {

// `ingot bench --traffic`: what one decode step of each batch size moves between the GPU and its memory, beside the
// least it could: weights once and the cache once. Counted by the software Metal device.
void print_traffic(const ModelArgs& model, const std::vector<int32_t>& batches, int64_t prompt_len, bool json);

}  // namespace ingot::cli
