#pragma once

#include "text/tokenizer_data.h"

namespace ingot {

class JsonView;

// Reads "normalizer", "pre_tokenizer" and "decoder" of a tokenizer.json into `data`. Throws `declined` naming the key
// for kinds that are not supported.
void read_hf_steps(const JsonView& tokenizer, TokenizerData& data);

}  // namespace ingot
