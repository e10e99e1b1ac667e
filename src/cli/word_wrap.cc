#include "cli/word_wrap.h"

#include <wchar.h>

#include <algorithm>

#include "core/utf8.h"

namespace ingot::cli {
namespace {

constexpr std::string_view kFence = "```";

int columns_of(char32_t character) { return std::max(0, ::wcwidth(static_cast<wchar_t>(character))); }

int columns_of(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = decode_valid_utf8(text.data() + i);
    columns += columns_of(character.code);
    i += static_cast<size_t>(character.length);
  }
  return columns;
}

}  // namespace

void WordWrap::place_word(std::string& out, int columns) {
  const int spaces = columns_of(spaces_), word = columns_of(word_);
  // A word that is longer than a line gains nothing from a new one.
  if (!code_ && !word_.empty() && column_ > 0 && column_ + spaces + word > columns && word <= columns) {
    out += '\n';
    column_ = 0;
  } else {
    out += spaces_;
    column_ += spaces;
  }
  out += word_;
  column_ += word;
  if (column_ > columns) column_ = (column_ - 1) % columns + 1;
  spaces_.clear();
  word_.clear();
}

void WordWrap::end_line(std::string& out) {
  out += '\n';
  column_ = 0;
  if (line_ == kFence) code_ = !code_;
  line_.clear();
}

std::string WordWrap::push(std::string_view piece, int columns) {
  std::string out;
  columns = std::max(columns, 1);
  for (size_t i = 0; i < piece.size();) {
    const Utf8Char character = decode_valid_utf8(piece.data() + i);
    const std::string_view bytes = piece.substr(i, static_cast<size_t>(character.length));
    i += bytes.size();
    if (line_.size() < kFence.size() && !(line_.empty() && bytes == " ") && bytes != "\n") line_ += bytes;
    if (bytes == "\n") {
      place_word(out, columns);
      end_line(out);
    } else if (bytes == " " || bytes == "\t") {
      if (!word_.empty()) place_word(out, columns);
      spaces_ += bytes;
    } else {
      // Wide characters (Chinese, Japanese) are words of their own.
      const bool wide = columns_of(character.code) > 1;
      if (wide && !word_.empty()) place_word(out, columns);
      word_ += bytes;
      if (wide || code_) place_word(out, columns);
    }
  }
  return out;
}

std::string WordWrap::finish(int columns) {
  std::string out;
  place_word(out, std::max(columns, 1));
  return out;
}

}  // namespace ingot::cli
