#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot {

// The outputs of one step in shared memory, read after wait(). Laid out by the engine at load for the most rows a step
// has.
struct OutputLayout {
  int32_t max_rows = 0;         // R
  int32_t max_top = 0;          // alternatives a row
  int32_t max_logits_rows = 0;  // rows of full logits
  int64_t vocab = 0;
  size_t tokens = 0;      // int32 [R]
  size_t logprobs = 0;    // float [R]
  size_t ranks = 0;       // int32 [R]
  size_t top_ids = 0;     // int32 [R][max_top]
  size_t top_values = 0;  // float [R][max_top]
  size_t logits = 0;      // float [max_logits_rows][vocab]
  size_t bytes = 0;
};

}  // namespace ingot
