// Any bytes as a tekken.json.
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "ingot/tokenizer.h"
#include "text/tokenizer_readers.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const Tokenizer tokenizer(read_tekken_tokenizer({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const auto ids = tokenizer.encode("Hello abc 123 \xE4\xBD\xA0\n</s>[INST]");
    for (int32_t id : ids)
      if (id < 0 || id >= tokenizer.vocab_size()) __builtin_trap();
    if (!is_valid_utf8(tokenizer.decode(ids, false))) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
