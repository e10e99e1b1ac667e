#pragma once

#include <cstddef>
#include <string_view>

namespace ingot {

// The part of a model's text that is there so far, and how far it has been read.
struct Input {
  std::string_view text;
  size_t at = 0;       // what is before has been read
  size_t kept = 0;     // what is from here to `at` has been read but is in no event yet; it may turn out to be no call
  bool ended = false;  // nothing follows

  bool empty() const { return at == text.size(); }
  char next() const { return text[at]; }
  std::string_view rest() const { return text.substr(at); }
};

// How far a reader has come. It takes from the input what it can; cutting the text elsewhere never changes what it
// reads.
enum class Read {
  more,    // the text so far fits; the reader goes on when there is more of it
  done,    // all is read; `at` is behind it
  failed,  // the text does not fit from `at` on
};

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline void skip_space(Input& in) {
  while (!in.empty() && is_space(in.next())) ++in.at;
}

// Takes all of `mark` or nothing. Where the text ends within it, more is waited for: what is missing was cut off.
inline Read read_mark(Input& in, std::string_view mark) {
  const std::string_view rest = in.rest();
  if (rest.starts_with(mark)) {
    in.at += mark.size();
    return Read::done;
  }
  return mark.starts_with(rest) ? Read::more : Read::failed;
}

// `text` without white space at its ends.
inline std::string_view strip_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace ingot
