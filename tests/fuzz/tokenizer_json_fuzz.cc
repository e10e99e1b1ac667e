// Any bytes as a tokenizer.json: read it, and when it is accepted, tokenize a text with it and read the tokens back.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "ingot/tokenizer.h"
#include "text/detokenizer.h"
#include "text/tokenizer_readers.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const Tokenizer tokenizer(read_hf_tokenizer({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const std::string text = "Hello it's 2024  a<s>b\n\n \xE4\xBD\xA0\xF0\x9F\x98\x80 e\xCC\x81 \xFF</s>";
    const auto ids = tokenizer.encode(text);
    for (int32_t id : ids)
      if (id < 0 || id >= tokenizer.vocab_size()) __builtin_trap();
    if (!is_valid_utf8(tokenizer.decode(ids))) __builtin_trap();
    if (!is_valid_utf8(tokenizer.decode(tokenizer.encode(text, {false, false}), false))) __builtin_trap();
  } catch (const Error&) {
    // refused, which is what most inputs deserve
  }
  return 0;
}
