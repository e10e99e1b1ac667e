#pragma once

#include <optional>

namespace ingot::metal {

// What a threadgroup of decode attention takes of a sequence. Results are the same to the bit.
enum class AttentionCut { spans, splits, whole };

// Instead of what the number of rows and their lengths ask for; for tests.
inline std::optional<AttentionCut> tried_cut;

}  // namespace ingot::metal
