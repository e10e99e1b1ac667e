#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ingot/step.h"
#include "step/staged.h"

namespace ingot {

// The outputs of one step in shared memory, read after wait(): where each array lies. Planned at load for the most rows
// that a step has.
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
  size_t pooled = 0;      // float [max_pooled][pooled_dim]
  int32_t max_pooled = 0;
  int64_t pooled_dim = 0;
  size_t states = 0;  // float [max_states][state_width]: of one rank alone, never sent
  int32_t max_states = 0;
  int64_t state_width = 0;
  size_t bytes = 0;

  static OutputLayout of(int32_t rows, int32_t top, int32_t logits_rows, int64_t vocab, int32_t pooled = 0,
                         int64_t pooled_dim = 0, int32_t states = 0, int64_t state_width = 0);

  // What a step of `rows` rows, `logits_rows` of them with full logits, and `vectors` pooled ones has written: the
  // front of each array.
  struct Part {
    size_t offset = 0, bytes = 0;
  };
  std::array<Part, 7> written(size_t rows, size_t logits_rows, size_t vectors) const;
};

// The arrays themselves.
struct OutputArrays {
  OutputArrays(const OutputLayout& layout, std::byte* memory);

  int32_t* tokens;
  float* logprobs;
  int32_t* ranks;
  int32_t* top_ids;
  float* top_values;
  float* logits;
};

// How much of its outputs a step writes, for what is sent: alternatives only if a row wants any.
struct OutputCounts {
  size_t rows = 0, logits_rows = 0, vectors = 0;
  bool top = false;

  static OutputCounts of(std::span<const RowOutput> wanted, size_t vectors);
  static OutputCounts of(std::span<const StagedSampling> rows, size_t vectors);
  size_t packed_bytes(const OutputLayout& layout) const;
};
// Moves the front of each array to the front of all of them, one behind the other; and back.
void pack_output(const OutputLayout& layout, const OutputCounts& counts, std::byte* memory);
void unpack_output(const OutputLayout& layout, const OutputCounts& counts, std::byte* memory);

// What each row wanted, out of the memory that a step left.
std::vector<RowResult> read_rows(const OutputLayout& layout, std::span<const std::byte> memory,
                                 std::span<const RowOutput> wanted);

std::vector<float> read_states(const OutputLayout& layout, std::span<const std::byte> memory, size_t rows);
std::vector<std::vector<float>> read_pooled(const OutputLayout& layout, std::span<const std::byte> memory,
                                            size_t vectors);

}  // namespace ingot
