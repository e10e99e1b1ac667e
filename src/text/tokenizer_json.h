#pragma once

#include <string>

#include "text/tokenizer_data.h"

namespace ingot {

// The tokenizer as Hugging Face `tokenizers` reads it: the way back from TokenizerData to tokenizer.json.
std::string write_tokenizer_json(const TokenizerData& data);
// What belongs beside it: special token texts and the chat templates, as tokenizer_config.json.
std::string write_tokenizer_config(const TokenizerData& data, int64_t max_length);

}  // namespace ingot
