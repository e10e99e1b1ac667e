#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "grammar/vocabulary.h"
#include "ingot/tokenizer.h"

namespace ingot::grammar {

// The tokens of a model, as grammars want them. `size`: the width of the model's logits, which may be more than the
// tokenizer has; 0: as many. `end_ids`: what ends a text; empty: the tokenizer's. Takes about a tenth of a second for
// 131,072 tokens, so make it once a model.
inline std::shared_ptr<const Vocabulary> make_vocabulary(const Tokenizer& tokenizer, size_t size = 0,
                                                         std::vector<int32_t> end_ids = {}) {
  const auto known = static_cast<size_t>(tokenizer.vocab_size());
  std::vector<Vocabulary::Token> tokens(size == 0 ? known : size);
  for (size_t id = 0; id < tokens.size() && id < known; ++id) {
    const auto token = static_cast<int32_t>(id);
    tokens[id] = {tokenizer.token_bytes(token), tokenizer.is_special(token)};
  }
  if (end_ids.empty()) end_ids = tokenizer.end_ids();
  return std::make_shared<const Vocabulary>(tokens, std::move(end_ids));
}

}  // namespace ingot::grammar
