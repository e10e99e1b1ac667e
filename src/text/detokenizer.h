#pragma once

#include <cstdint>
#include <string>

#include "ingot/tokenizer.h"

namespace ingot {

// Turns a stream of token ids into text as they come. It never hands out part of a character: bytes wait until the
// character is whole, or until it is sure that it never will be (then U+FFFD). The concatenation of everything handed
// out is what Tokenizer::decode gives for all the ids. The tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  std::string push(int32_t id);             // the text that is certain now, often empty
  std::string finish();                     // what was still waiting; afterwards the object is as new
  void push(int32_t id, std::string& out);  // the same, appended to `out`
  void finish(std::string& out);
  void reset();

 private:
  void emit(std::string_view text, std::string& out);
  void flush_bytes(std::string& out, bool all);

  const Tokenizer::Impl& impl_;
  bool skip_special_;
  bool first_ = true;        // no token was taken yet
  uint32_t strip_left_ = 0;  // leading characters that may still be stripped; 0 once other text was seen
  std::string bytes_;        // waiting: the beginning of a character
};

}  // namespace ingot
