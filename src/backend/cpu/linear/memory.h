#pragma once

#include <cstddef>
#include <memory>

namespace ingot::cpu {

// Memory for weights, 64-byte aligned. Matrices lie close together in large regions backed by huge pages where the
// system has them: reading weights at full speed needs few address translations (here 30 instead of 23 GB/s). A region
// goes back to the system with the last matrix in it.
// Throws out_of_memory.
std::shared_ptr<std::byte> allocate_weights(size_t bytes);

}  // namespace ingot::cpu
