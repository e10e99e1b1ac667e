#include "grammar/vocabulary.h"

#include <algorithm>

#include "core/error.h"
#include "core/utf8.h"

namespace ingot::grammar {
namespace {

constexpr int kSliceChars[] = {1 << 16, 12, 5};
constexpr size_t kMaxTokenBytes = 60'000;

std::vector<TokenTree::Entry> all_entries(std::span<const std::string> tokens) {
  std::vector<TokenTree::Entry> entries;
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) entries.push_back({tokens[id], static_cast<int32_t>(id)});
  return entries;
}

// Characters of a text that may stand in a JSON string as it is; -1: it may not.
int plain_chars(std::string_view bytes) {
  int count = 0;
  for (size_t at = 0; at < bytes.size(); ++count) {
    const auto byte = static_cast<uint8_t>(bytes[at]);
    if (byte < 0x20 || byte == '"' || byte == '\\') return -1;
    const Utf8Step step = inspect_utf8(bytes.substr(at));
    if (step.status != Utf8Status::valid) return -1;
    at += step.length;
  }
  return count;
}

// The tokens as the trees have them: special ones marked, those that end a text left out.
std::vector<std::string> with_marks(std::span<const Vocabulary::Token> tokens, std::span<const int32_t> end_ids) {
  std::vector<std::string> out;
  out.reserve(tokens.size());
  for (const Vocabulary::Token& token : tokens) {
    if (token.bytes.size() > kMaxTokenBytes)
      throw_error(ErrorKind::declined, "a token of {} bytes is too long for a grammar", token.bytes.size());
    out.push_back(token.special && !token.bytes.empty() ? static_cast<char>(kSpecialMark) + token.bytes : token.bytes);
  }
  for (const int32_t id : end_ids) {
    if (id < 0 || static_cast<size_t>(id) >= out.size())
      throw_error(ErrorKind::bad_call, "the end token {} is not in the vocabulary of {}", id, out.size());
    out[static_cast<size_t>(id)].clear();
  }
  return out;
}

}  // namespace

TokenTree::TokenTree(std::vector<Entry> entries) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token;
  });
  std::vector<uint32_t> open;  // nodes from the root to the last one
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) nodes[open.back()].end = static_cast<uint32_t>(nodes.size());
  };
  std::string_view last;
  for (const Entry& entry : entries) {
    size_t common = 0;
    while (common < last.size() && common < entry.bytes.size() && last[common] == entry.bytes[common]) ++common;
    if (common == entry.bytes.size()) --common;  // the same bytes again: a second last node
    close_to(common);
    for (size_t i = common; i < entry.bytes.size(); ++i) {
      open.push_back(static_cast<uint32_t>(nodes.size()));
      nodes.push_back({0, -1, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(entry.bytes[i])});
    }
    nodes.back().token = entry.token;
    max_depth = std::max(max_depth, entry.bytes.size());
    last = entry.bytes;
  }
  close_to(0);
}

Vocabulary::Vocabulary(std::span<const Token> tokens, std::vector<int32_t> end_ids)
    : tokens_(with_marks(tokens, end_ids)), end_ids_(std::move(end_ids)), tree_(all_entries(tokens_)) {
  for (size_t id = 0; id < tokens.size(); ++id)
    if (tokens[id].special && !tokens[id].bytes.empty()) special_texts_.push_back(tokens[id].bytes);
  std::ranges::sort(special_texts_, [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  std::vector<int> chars;
  for (const std::string& bytes : tokens_) chars.push_back(bytes.empty() ? -1 : plain_chars(bytes));
  for (const int max_chars : kSliceChars) {
    std::vector<uint32_t> bits(mask_words());
    std::vector<TokenTree::Entry> others;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].empty()) continue;
      if (chars[id] >= 0 && chars[id] <= max_chars)
        bits[id / 32] |= uint32_t{1} << (id % 32);
      else
        others.push_back({tokens_[id], static_cast<int32_t>(id)});
    }
    slices_.push_back({max_chars, std::move(bits), TokenTree(std::move(others))});
  }
  index_plain_tokens(chars);
}

void Vocabulary::index_plain_tokens(const std::vector<int>& chars) {
  const auto& nodes = tree_.nodes;
  std::vector<uint32_t> other_tokens{0};  // before each node
  for (const TokenTree::Node& node : nodes) {
    plain_before_.push_back(static_cast<uint32_t>(plain_tokens_.size()));
    const bool is_token = node.token >= 0, is_plain = is_token && chars[static_cast<size_t>(node.token)] >= 0;
    if (is_plain) plain_tokens_.push_back(node.token);
    other_tokens.push_back(other_tokens.back() + (is_token && !is_plain ? 1 : 0));
  }
  plain_before_.push_back(static_cast<uint32_t>(plain_tokens_.size()));
  // A node is in the others' tree when such a token lies at or below it.
  uint32_t count = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    others_before_.push_back(count);
    if (other_tokens[nodes[i].end] > other_tokens[i]) ++count;
  }
  others_before_.push_back(count);
}

bool Vocabulary::is_end(int32_t id) const { return std::ranges::find(end_ids_, id) != end_ids_.end(); }

}  // namespace ingot::grammar
