#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ingot/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_data.h"

namespace ingot {

// How tokens become text, distilled from the decoder steps.
struct DecodeRules {
  bool byte_level = false;     // token texts are in the byte alphabet; bytes of neighbours join into characters
  bool byte_fallback = false;  // <0x..> tokens are bytes
  bool join_with_spaces = false;
  std::vector<std::pair<std::string, std::string>> replace;  // in every token, in order
  std::string drop_in_first;                                 // not empty: removed from the first token
  std::string strip;                                         // character removed from the start of the whole text...
  uint32_t strip_most = 0;                                   // ...at most so many times
};
DecodeRules decode_rules_of(const TokenizerData& data);

struct Tokenizer::Impl {
  explicit Impl(TokenizerData tokenizer_data);

  TokenizerData data;
  DecodeRules decode_rules;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokenMatcher raw_added;         // matched in the text as it came
  AddedTokenMatcher normalized_added;  // matched after normalization
  TokenTable by_text;
  std::vector<uint8_t> special;  // by id

  // Byte value of a <0x..> token when these are decoded to bytes, else -1.
  int fallback_byte(int32_t id) const;
  // The token's text, or bytes when they are decoded at the level of bytes, as it stands in the middle of a text.
  std::string piece(int32_t id, bool first) const;

  // Working memory, one for each encode() that runs at the same time.
  std::unique_ptr<Bpe::Scratch> take_scratch() const;
  void give_scratch(std::unique_ptr<Bpe::Scratch> scratch) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Bpe::Scratch>> idle_;
};

}  // namespace ingot
