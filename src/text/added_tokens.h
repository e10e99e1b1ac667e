#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer_data.h"

namespace ingot {

// Finds added tokens in a text: leftmost first, the longest of those that start at the same place.
class AddedTokenMatcher {
 public:
  // A stretch of the text: a token when `id` >= 0, else text still to be encoded.
  struct Piece {
    size_t begin, end;
    int32_t id;
  };

  // `text` is what to look for; it may differ from the token's own content (its normalized form).
  void add(const AddedToken& token, std::string_view text);
  bool empty() const { return tokens_.empty(); }

  // Appends the pieces of `text` in order. Special tokens are left as text unless parse_special.
  void split(std::string_view text, bool parse_special, std::vector<Piece>& pieces) const;

 private:
  struct Node {
    int32_t token = -1;        // index into tokens_ of the token that ends here
    int32_t first_child = -1;  // children are a linked list of siblings
    int32_t sibling = -1;
    char byte = 0;
  };

  int32_t find_child(int32_t node, char byte) const;
  const AddedToken* match_at(std::string_view text, size_t position, size_t* length) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_ = make_roots();

  static std::array<int32_t, 256> make_roots() {
    std::array<int32_t, 256> roots;
    roots.fill(-1);
    return roots;
  }
};

}  // namespace ingot
