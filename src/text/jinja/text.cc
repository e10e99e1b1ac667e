#include "text/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

void check_text(const std::string& out) {
  if (out.size() > kMaxValueWeight)
    raise(Fault::limit, "a text of the template grew over {} MiB", kMaxValueWeight >> 20);
}

void append_repr(std::string& out, const Value& v, int level);

void append_items(std::string& out, const std::vector<Value>& items, int level) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, item, level + 1);
  }
}

void append_entries(std::string& out, const std::vector<Dict::Entry>& entries, int level) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, key, level + 1);
    out += ": ";
    append_repr(out, value, level + 1);
  }
  out += '}';
}

void append_repr(std::string& out, const Value& v, int level) {
  if (level > kMaxValueDepth + 8) raise(Fault::limit, "a value contains itself and cannot be printed");
  check_text(out);
  switch (v.kind()) {
    case Kind::none: out += "None"; break;
    case Kind::boolean: out += v.as_bool() ? "True" : "False"; break;
    case Kind::integer: out += std::to_string(v.as_int()); break;
    case Kind::real: out += real_text(v.as_real()); break;
    case Kind::string: out += v.is_markup() ? fmt::format("Markup({})", quote(v.text())) : quote(v.text()); break;
    case Kind::sequence: {
      out += v.is_list() ? '[' : '(';
      append_items(out, v.items(), level);
      if (!v.is_list() && v.items().size() == 1) out += ',';
      out += v.is_list() ? ']' : ')';
      break;
    }
    case Kind::dict: append_entries(out, v.dict().entries(), level); break;
    case Kind::undefined: out += "Undefined"; break;
    case Kind::object: out += v.object()->repr(level); break;
  }
}

}  // namespace

std::string quote(std::string_view text) {
  const char mark = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, mark);
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_char(text, pos);
    if (c == static_cast<char32_t>(mark) || c == '\\') {
      out += '\\';
      append_char(out, c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_char(out, c);
    } else if (c >= kBadByte) {
      out += fmt::format("\\udc{:02x}", static_cast<uint32_t>(c - kBadByte));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out += mark;
  return out;
}

std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string_view shortest(buffer, result.ptr - buffer);  // like -1.234e+05
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", shortest.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == out.npos) out += ".0";
  return out;
}

std::string str(const Value& v) {
  if (v.is_string()) return v.text();
  if (v.is_undefined()) return "";
  return repr(v);
}

std::string repr(const Value& v, int level) {
  std::string out;
  append_repr(out, v, level);
  check_text(out);
  return out;
}

std::string repr_entries(const std::vector<Dict::Entry>& entries, int level) {
  std::string out;
  append_entries(out, entries, level);
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace ingot::jinja
