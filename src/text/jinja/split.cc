#include <string.h>

#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    size_t end = 0;
    for (size_t next = 0; end < text.size(); end = next)
      if (is_space(next_char(text, next))) break;
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

std::vector<std::string> split_whitespace(std::string_view text, int64_t maxsplit, bool from_right) {
  const auto words = words_of(text);
  std::vector<std::string> parts(words.begin(), words.end());
  if (maxsplit < 0 || static_cast<size_t>(maxsplit) >= words.size()) return parts;
  // What is over the limit stays together, with the whitespace at its far end.
  const size_t rest = words.size() - static_cast<size_t>(maxsplit);  // words in it, at least 1
  if (from_right) {
    const char* end = words[rest - 1].data() + words[rest - 1].size();
    parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(rest));
    parts.emplace(parts.begin(), text.data(), static_cast<size_t>(end - text.data()));
  } else {
    const char* begin = words[static_cast<size_t>(maxsplit)].data();
    parts.resize(static_cast<size_t>(maxsplit));
    parts.emplace_back(begin, static_cast<size_t>(text.data() + text.size() - begin));
  }
  return parts;
}

}  // namespace

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return text.npos;
  if (needle.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? text.npos : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  if (needle.size() > text.size()) return text.npos;
  // Knuth, Morris and Pratt's search, from the right: fallback[k] is how much still matches when k characters did.
  const size_t m = needle.size();
  std::vector<uint32_t> fallback(m + 1, 0);
  const auto needle_at = [&](size_t i) { return needle[m - 1 - i]; };
  for (size_t i = 1, k = 0; i < m; ++i) {
    while (k > 0 && needle_at(i) != needle_at(k)) k = fallback[k];
    if (needle_at(i) == needle_at(k)) ++k;
    fallback[i + 1] = static_cast<uint32_t>(k);
  }
  size_t matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && text[i] != needle_at(matched)) matched = fallback[matched];
    if (text[i] == needle_at(matched)) ++matched;
    if (matched == m) return i;
  }
  return text.npos;
}

std::vector<std::string> split_text(std::string_view text, const std::string* sep, int64_t maxsplit, bool from_right) {
  if (sep == nullptr) return split_whitespace(text, maxsplit, from_right);
  if (sep->empty()) raise(Fault::value_error, "empty separator");
  std::vector<std::string> parts;
  const auto more = [&] { return maxsplit < 0 || static_cast<int64_t>(parts.size()) < maxsplit; };
  if (from_right) {
    for (size_t at; more() && (at = rfind_text(text, *sep)) != text.npos; text = text.substr(0, at))
      parts.emplace_back(text.substr(at + sep->size()));
    parts.emplace_back(text);
    std::reverse(parts.begin(), parts.end());
  } else {
    for (size_t at; more() && (at = find_text(text, *sep)) != text.npos; text = text.substr(at + sep->size()))
      parts.emplace_back(text.substr(0, at));
    parts.emplace_back(text);
  }
  return parts;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  size_t pos = 0;
  const auto check = [&] {
    if (out.size() > kMaxValueWeight) raise(Fault::limit, "replace() made over {} MiB of text", kMaxValueWeight >> 20);
  };
  if (from.empty()) {  // goes in before every character and at the end
    while (count != 0) {
      out += to;
      --count;
      check();
      if (pos >= text.size()) break;
      const size_t start = pos;
      next_char(text, pos);
      out += text.substr(start, pos - start);
    }
    return out.append(text.substr(pos));
  }
  for (size_t at; count != 0 && (at = find_text(text, from, pos)) != text.npos; pos = at + from.size(), --count) {
    out += text.substr(pos, at - pos);
    out += to;
    check();
  }
  return out.append(text.substr(pos));
}

std::string strip_chars(std::string_view text, std::string_view chars, bool left, bool right) {
  std::vector<char32_t> set = decode(chars);
  std::sort(set.begin(), set.end());
  const auto in_set = [&set](char32_t c) { return std::binary_search(set.begin(), set.end(), c); };
  const std::vector<char32_t> all = decode(text);
  size_t begin = 0;
  size_t end = all.size();
  while (left && begin < end && in_set(all[begin])) ++begin;
  while (right && end > begin && in_set(all[end - 1])) --end;
  return encode({all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)});
}

}  // namespace ingot::jinja
