#include "text/jinja/text.h"

#include <charconv>
#include <cmath>

#include "text/jinja/strings.h"

namespace ingot::jinja {
namespace {

void append_repr(std::string& out, const Value& v) {
  if (out.size() > kMaxValueWeight) raise_limit("a text of the template grew over {} MiB", kMaxValueWeight >> 20);
  const auto append_items = [&out](char open, const auto& items, char close, auto append_item) {
    out += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      append_item(items[i]);
    }
    out += close;
  };
  const auto item = [&out](const Value& each) { append_repr(out, each); };
  switch (v.kind()) {
    case Kind::none: out += "None"; break;
    case Kind::boolean: out += v.as_bool() ? "True" : "False"; break;
    case Kind::integer: out += std::to_string(v.as_int()); break;
    case Kind::real: out += real_text(v.as_real()); break;
    case Kind::string: out += v.is_markup() ? fmt::format("Markup({})", quote(v.text())) : quote(v.text()); break;
    case Kind::sequence:
      if (v.is_tuple()) {
        append_items('(', v.items(), ')', item);
        if (v.items().size() == 1) out.insert(out.size() - 1, ",");
      } else if (v.is_list()) {
        append_items('[', v.items(), ']', item);
      } else if (v.seq()->type == Seq::Type::range || v.seq()->type == Seq::Type::generator) {
        raise_unsupported("the text of a {} is not supported: make it a list first", type_name(v));
      } else {
        out += fmt::format("{}(", type_name(v));
        append_items('[', v.items(), ']', item);
        out += ')';
      }
      break;
    case Kind::dict:
      append_items('{', v.dict().entries(), '}', [&out](const Dict::Entry& entry) {
        append_repr(out, entry.first);
        out += ": ";
        append_repr(out, entry.second);
      });
      break;
    case Kind::undefined: out += "Undefined"; break;
    case Kind::object: raise_unsupported("the text of a {} is not supported", type_name(v));
  }
}

}  // namespace

std::string quote(std::string_view text) {
  const char mark = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, mark);
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_char(text, pos);
    const auto code = static_cast<uint32_t>(c);
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
      out += fmt::format("\\udc{:02x}", code - kBadByte);
    } else {
      out += c < 0x100     ? fmt::format("\\x{:02x}", code)
             : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\U{:08x}", code);
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
  if (exponent < -4 || exponent >= 16)
    return fmt::format("{}e{}{:02}", shortest.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
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

std::string repr(const Value& v) {
  std::string out;
  append_repr(out, v);
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
