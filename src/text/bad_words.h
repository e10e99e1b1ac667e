#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cancel.h"
#include "ingot/tokenizer.h"

namespace ingot {

// The token sequences that must not be generated so that none of the words is: a word may stand at the beginning of a
// text or after a space, and both forms are barred. Throws Error (bad_call) for an empty word.
std::vector<std::vector<int32_t>> bad_word_ids(const Tokenizer& tokenizer, const std::vector<std::string>& words,
                                               const CancelFlag* cancelled = nullptr);

}  // namespace ingot
