#pragma once

#include <cstdint>

#include "formats/gguf_write.h"
#include "text/tokenizer_data.h"

namespace ingot {

// The tokenizer as the metadata of a GGUF file whose embedding has `vocab` rows; ids past the tokenizer's become unused
// tokens. Throws declined for a tokenizer that GGUF cannot say, as llama.cpp and our own reader understand it.
void put_gguf_tokenizer(GgufValues& values, const TokenizerData& data, int64_t vocab);

}  // namespace ingot
