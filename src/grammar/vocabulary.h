#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ingot::grammar {

// Marks a special token among bytes: no UTF-8 has this byte. The token's text follows it.
inline constexpr uint8_t kSpecialMark = 0xFF;

// Byte strings with numbers, as a tree laid out in the order it is walked.
struct TokenTree {
  struct Node {
    uint32_t end;    // the first node that does not lie below this one
    int32_t token;   // that ends here; -1: none
    uint16_t depth;  // 1 for the first byte
    uint8_t byte;
  };
  std::vector<Node> nodes;
  size_t max_depth = 0;

  struct Entry {
    std::string bytes;
    int32_t token;
  };
  explicit TokenTree(std::vector<Entry> entries);
};

// The tokens of a model as bytes. Immutable; shared by all grammars and threads.
class Vocabulary {
 public:
  struct Token {
    std::string bytes;     // what it adds to a text; empty: never generated
    bool special = false;  // a control token: matched only by grammars that name it
  };
  Vocabulary(std::span<const Token> tokens, std::vector<int32_t> end_ids);

  size_t size() const { return tokens_.size(); }
  size_t mask_words() const { return (tokens_.size() + 31) / 32; }
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const;
  const std::string& bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }  // with the mark
  const TokenTree& tree() const { return tree_; }
  const std::vector<std::string>& special_texts() const { return special_texts_; }  // the longest first

  // Tokens of whole characters that need no escape in a JSON string, at most `max_chars` of them, and the tree of all
  // others. Where a grammar allows any such text, their bits are set at once.
  struct Slice {
    int max_chars;
    std::vector<uint32_t> bits;
    TokenTree others;
  };
  const std::vector<Slice>& slices() const { return slices_; }  // the most characters first, all lengths

  // Where the tokens of the first slice lie in the tree: those at and below node i are plain_tokens()[first..last) with
  // first and last at i and at its end in plain_before(); its others are such a range of that slice's tree.
  const std::vector<int32_t>& plain_tokens() const { return plain_tokens_; }
  const std::vector<uint32_t>& plain_before() const { return plain_before_; }
  const std::vector<uint32_t>& others_before() const { return others_before_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> end_ids_;
  std::vector<std::string> special_texts_;
  TokenTree tree_;
  void index_plain_tokens(const std::vector<int>& chars);

  std::vector<Slice> slices_;
  std::vector<int32_t> plain_tokens_;
  std::vector<uint32_t> plain_before_, others_before_;  // by node of the tree, and one more
};

}  // namespace ingot::grammar
