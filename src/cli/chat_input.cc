#include "cli/chat_input.h"

#include "core/utf8.h"

namespace ingot::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kSpaces = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

bool MessageLines::push(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (mode_ == Mode::none && line.starts_with(kQuotes)) {
    mode_ = Mode::quotes;
    quoted_ = true;
    line.remove_prefix(kQuotes.size());
    if (line.empty()) return false;
  } else if (mode_ == Mode::quotes && !text_.empty()) {
    text_ += '\n';
  }
  if (mode_ == Mode::quotes) {
    const bool end = line.ends_with(kQuotes);
    if (end) line.remove_suffix(kQuotes.size());
    text_ += line;
    if (end && line.empty() && text_.ends_with('\n')) text_.pop_back();
    if (end) mode_ = Mode::none;
    return end;
  }
  const bool more = line.ends_with('\\');
  if (more) line.remove_suffix(1);
  text_ += line;
  if (more) text_ += '\n';
  mode_ = more ? Mode::backslash : Mode::none;
  return !more;
}

std::string MessageLines::take() {
  std::string text = replace_invalid_utf8(text_);
  text_.clear();
  mode_ = Mode::none;
  quoted_ = false;
  return text;
}

bool is_command(std::string_view message) {
  if (message.size() < 2 || message[0] != '/') return false;
  size_t end = 1;
  const auto in_a_name = [](char c) { return (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '?'; };
  while (end < message.size() && in_a_name(message[end])) ++end;
  return end > 1 && (end == message.size() || kSpaces.find(message[end]) != std::string_view::npos);
}

Command parse_command(std::string_view message) {
  message.remove_prefix(1);
  const size_t end = message.find_first_of(kSpaces);
  return {std::string(message.substr(0, end)),
          end == std::string_view::npos ? "" : std::string(trim(message.substr(end)))};
}

std::string printable_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && byte != '\n' && byte != '\t') continue;
    if (byte == 0x7f) continue;
    // U+0080 to U+009F, the second set of controls, are C2 80 to C2 9F.
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

}  // namespace ingot::cli
