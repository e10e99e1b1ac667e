#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace ingot {
namespace {

// Start of the character that ends right before `end` (end > 0).
size_t previous_char(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (text[i] & 0xC0) == 0x80) --i;
  return i;
}

uint8_t class_at(std::string_view text, size_t i) {
  return CharClasses::get()[decode_valid_utf8(text.data() + i).code];
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && (class_at(text, previous_char(text, begin)) & kWord)) return true;
  return end < text.size() && (class_at(text, end) & kWord);
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view text) {
  if (text.empty()) return;
  auto new_node = [this](char byte) {
    Node node;
    node.byte = byte;
    nodes_.push_back(node);
    return static_cast<int32_t>(nodes_.size() - 1);
  };
  int32_t& root = roots_[static_cast<uint8_t>(text[0])];
  if (root < 0) root = new_node(text[0]);
  int32_t node = root;
  for (char byte : text.substr(1)) {
    int32_t child = find_child(node, byte);
    if (child < 0) {
      child = new_node(byte);
      nodes_[child].sibling = nodes_[node].first_child;
      nodes_[node].first_child = child;
    }
    node = child;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokenMatcher::find_child(int32_t node, char byte) const {
  int32_t child = nodes_[node].first_child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

const AddedToken* AddedTokenMatcher::match_at(std::string_view text, size_t position, size_t* length) const {
  const AddedToken* best = nullptr;
  int32_t node = roots_[static_cast<uint8_t>(text[position])];
  for (size_t i = position; node >= 0;) {
    ++i;
    if (nodes_[node].token >= 0) {
      best = &tokens_[nodes_[node].token];
      *length = i - position;
    }
    if (i == text.size()) break;
    node = find_child(node, text[i]);
  }
  return best;
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special, std::vector<Piece>& pieces) const {
  size_t done = 0;
  if (!tokens_.empty()) {
    for (size_t i = 0; i < text.size();) {
      if (roots_[static_cast<uint8_t>(text[i])] < 0) {
        ++i;
        continue;
      }
      size_t length = 0;
      const AddedToken* token = match_at(text, i, &length);
      if (!token) {
        ++i;
        continue;
      }
      size_t begin = i;
      size_t end = i + length;
      i = end;
      if (token->special && !parse_special) continue;
      if (token->single_word && touches_word(text, begin, end)) continue;
      if (token->lstrip) {
        while (begin > done) {
          const size_t previous = previous_char(text, begin);
          if (!(class_at(text, previous) & kSpace)) break;
          begin = previous;
        }
      }
      if (token->rstrip) {
        while (end < text.size() && (class_at(text, end) & kSpace)) end += decode_valid_utf8(text.data() + end).length;
      }
      if (done < begin) pieces.push_back({done, begin, -1});
      pieces.push_back({begin, end, token->id});
      done = end;
    }
  }
  if (done != text.size()) pieces.push_back({done, text.size(), -1});
}

}  // namespace ingot
