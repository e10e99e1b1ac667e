#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/ops.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

// A format specification: [[fill]align][sign][#][0][width][grouping][.precision][type].
struct Spec {
  char32_t fill = ' ';
  char align = 0;
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

int64_t read_number(std::string_view text, size_t& pos) {
  int64_t n = 0;
  while (pos < text.size() && is_ascii_digit(text[pos])) {
    n = n * 10 + (text[pos++] - '0');
    if (n > kMaxWidth) raise(Fault::limit, "a format width or precision is over {}", kMaxWidth);
  }
  return n;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t pos = 0;
  if (!text.empty()) {
    size_t after = 0;
    const char32_t first = next_char(text, after);
    if (after < text.size() && is_align(text[after])) {
      spec.fill = first;
      spec.align = text[after];
      pos = after + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto at = [&](char c) { return pos < text.size() && text[pos] == c; };
  if (at('+') || at('-') || at(' ')) spec.sign = text[pos++];
  if (at('#')) spec.alternate = true, ++pos;
  if (at('0')) {
    if (spec.align == 0) spec.fill = '0', spec.align = '=';
    ++pos;
  }
  spec.width = read_number(text, pos);
  if (at(',') || at('_')) spec.grouping = text[pos++];
  if (at('.')) {
    ++pos;
    if (pos >= text.size() || !is_ascii_digit(text[pos]))
      raise(Fault::value_error, "Format specifier missing precision");
    spec.precision = read_number(text, pos);
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos < text.size()) raise(Fault::value_error, "Invalid format specifier");
  return spec;
}

std::string group(std::string digits, char separator, size_t every) {
  if (separator == 0) return digits;
  for (size_t i = digits.size(); i > every;) {
    i -= every;
    digits.insert(i, 1, separator);
  }
  return digits;
}

std::string in_base(uint64_t n, unsigned base, bool upper) {
  std::string out;
  do {
    out += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[n % base];
    n /= base;
  } while (n > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string lay_out(bool negative, std::string digits, const Spec& spec) {
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const char align = spec.align == 0 ? '>' : spec.align;
  if (align != '=') return pad(sign + digits, spec.width, spec.fill, align);
  const int64_t left = spec.width - static_cast<int64_t>(sign.size());
  return sign + pad(digits, left, spec.fill, '>');
}

std::string integer_digits(uint64_t n, char type, bool alternate, char grouping) {
  switch (type) {
    case 'x': return (alternate ? "0x" : "") + group(in_base(n, 16, false), grouping, 4);
    case 'X': return (alternate ? "0X" : "") + group(in_base(n, 16, true), grouping, 4);
    case 'o': return (alternate ? "0o" : "") + group(in_base(n, 8, false), grouping, 4);
    case 'b': return (alternate ? "0b" : "") + group(in_base(n, 2, false), grouping, 4);
    default: return group(std::to_string(n), grouping, 3);
  }
}

uint64_t magnitude(int64_t n) { return n < 0 ? uint64_t{0} - static_cast<uint64_t>(n) : static_cast<uint64_t>(n); }

// The digits of |d| for one of e, E, f, F, g, G.
std::string real_digits(double d, char type, int64_t precision, bool alternate) {
  if (std::isnan(d)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(d)) return type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf";
  if (precision < 0) precision = 6;
  if (precision > 400) raise(Fault::limit, "a float precision over 400 is not supported");
  const int p = static_cast<int>(precision);
  switch (type) {
    case 'e': return alternate ? fmt::format("{:#.{}e}", d, p) : fmt::format("{:.{}e}", d, p);
    case 'E': return alternate ? fmt::format("{:#.{}E}", d, p) : fmt::format("{:.{}E}", d, p);
    case 'g': return alternate ? fmt::format("{:#.{}g}", d, std::max(p, 1)) : fmt::format("{:.{}g}", d, std::max(p, 1));
    case 'G': return alternate ? fmt::format("{:#.{}G}", d, std::max(p, 1)) : fmt::format("{:.{}G}", d, std::max(p, 1));
    default: return alternate ? fmt::format("{:#.{}f}", d, p) : fmt::format("{:.{}f}", d, p);
  }
}

std::string format_real(double d, const Spec& spec) {
  const double size = std::fabs(d);
  std::string digits;
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) {
        digits = real_text(size);
      } else {
        digits = real_digits(size, 'g', spec.precision, false);
        if (digits.find_first_of(".en") == digits.npos) digits += ".0";
      }
      break;
    case 'n': digits = real_digits(size, 'g', spec.precision, spec.alternate); break;
    case '%': digits = real_digits(size * 100, 'f', spec.precision, spec.alternate) + "%"; break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': digits = real_digits(size, spec.type, spec.precision, spec.alternate); break;
    default: raise(Fault::value_error, "Unknown format code '{}' for object of type 'float'", spec.type);
  }
  if (spec.grouping != 0) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = group(digits.substr(0, whole), spec.grouping, 3) + digits.substr(whole);
  }
  return lay_out(std::signbit(d) && !std::isnan(d), digits, spec);
}

std::string format_string(std::string_view text, const Spec& spec) {
  if (spec.type != 0 && spec.type != 's')
    raise(Fault::value_error, "Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.sign != '-') raise(Fault::value_error, "Sign not allowed in string format specifier");
  if (spec.align == '=' && spec.fill != '0')
    raise(Fault::value_error, "'=' alignment not allowed in string format specifier");
  std::string cut(text);
  if (spec.precision >= 0) {
    const auto offsets = char_offsets(text);
    if (static_cast<size_t>(spec.precision) < offsets.size()) cut.resize(offsets[static_cast<size_t>(spec.precision)]);
  }
  return pad(cut, spec.width, spec.fill, spec.align == 0 || spec.align == '=' ? '<' : spec.align);
}

// One conversion of a % format: %[(key)][flags][width][.precision]type.
struct Conversion {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

int64_t percent_integer(const Value& v, char type) {
  if (v.is_integral()) return v.as_int();
  if (v.is_real() && type != 'x' && type != 'X' && type != 'o' && std::fabs(v.as_real()) < 0x1p63)
    return static_cast<int64_t>(v.as_real());
  require_defined(v);
  raise(Fault::type_error, "%{} format: a real number is required, not {}", type, type_name(v));
}

std::string percent_text(const Value& v, const Conversion& c, bool escape) {
  std::string text = c.type == 's' ? str(v) : repr(v);
  if (escape && !v.is_markup()) text = escape_html(text);
  if (c.precision >= 0) {
    const auto offsets = char_offsets(text);
    if (static_cast<size_t>(c.precision) < offsets.size()) text.resize(offsets[static_cast<size_t>(c.precision)]);
  }
  return pad(text, c.width, ' ', c.left ? '<' : '>');
}

std::string convert(const Value& v, const Conversion& c, bool escape) {
  if (c.type == 's' || c.type == 'r' || c.type == 'a') return percent_text(v, c, escape);
  std::string sign;
  std::string digits;
  bool negative = false;
  switch (c.type) {
    case 'c': {
      if (v.is_string() && v.length() == 1) {
        digits = v.text();
      } else if (v.is_integral() && v.as_int() >= 0 && v.as_int() <= 0x10ffff) {
        append_char(digits, static_cast<char32_t>(v.as_int()));
      } else {
        raise(Fault::type_error, "%c requires int or char");
      }
      return pad(digits, c.width, ' ', c.left ? '<' : '>');
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      const int64_t n = percent_integer(v, c.type);
      negative = n < 0;
      digits = integer_digits(magnitude(n), c.type, false, 0);
      if (c.precision > static_cast<int64_t>(digits.size()))
        digits.insert(0, static_cast<size_t>(c.precision) - digits.size(), '0');
      if (c.alternate && (c.type == 'x' || c.type == 'X' || c.type == 'o')) sign = std::string("0") + c.type;
      break;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      require_defined(v);
      if (!v.is_number()) raise(Fault::type_error, "must be real number, not {}", type_name(v));
      negative = std::signbit(v.as_real());
      digits = real_digits(std::fabs(v.as_real()), c.type, c.precision, c.alternate);
      break;
    }
    default: raise(Fault::value_error, "unsupported format character '{}'", c.type);
  }
  sign = (negative ? "-" : c.plus ? "+" : c.space ? " " : "") + sign;
  if (c.left) return pad(sign + digits, c.width, ' ', '<');
  if (c.zero) return sign + pad(digits, c.width - static_cast<int64_t>(sign.size()), '0', '>');
  return pad(sign + digits, c.width, ' ', '>');
}

// Hands out the arguments of a % format.
class PercentArgs {
 public:
  explicit PercentArgs(const Value& args) : args_(args) {}

  Value next() {
    if (!args_.is_tuple()) {
      if (used_++ > 0) raise(Fault::type_error, "not enough arguments for format string");
      return args_;
    }
    if (used_ >= args_.items().size()) raise(Fault::type_error, "not enough arguments for format string");
    return args_.items()[used_++];
  }
  Value named(const std::string& key) {
    if (!args_.is_dict()) raise(Fault::type_error, "format requires a mapping");
    used_ = 1;
    const Value* v = args_.dict().find(std::string_view(key));
    if (v == nullptr) raise(Fault::lookup_error, "{}", quote(key));
    return *v;
  }
  void finish() const {
    const size_t count = args_.is_tuple() ? args_.items().size() : args_.is_dict() || args_.is_list() ? 0 : 1;
    if (used_ < count) raise(Fault::type_error, "not all arguments converted during string formatting");
  }

 private:
  const Value& args_;
  size_t used_ = 0;
};

// The text of a field's value in str.format(), after !r or !s and the specification.
std::string field_text(const Value& v, char conversion, std::string_view spec, bool escape) {
  Value value = v;
  if (conversion == 'r' || conversion == 'a') value = Value(repr(v));
  if (conversion == 's') value = Value(str(v));
  std::string text = format_value(value, spec);
  return escape && !value.is_markup() ? escape_html(text) : text;
}

class BraceFormatter {
 public:
  BraceFormatter(const Args& args, bool escape) : args_(args), escape_(escape) {}

  std::string format(std::string_view text, int level) {
    if (level > 1) raise(Fault::value_error, "Max string recursion exceeded");
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      if ((c == '{' || c == '}') && pos + 1 < text.size() && text[pos + 1] == c) {
        out += c;
        pos += 2;
      } else if (c == '}') {
        raise(Fault::value_error, "Single '}}' encountered in format string");
      } else if (c == '{') {
        out += field(text, pos, level);
      } else {
        out += c;
        ++pos;
      }
      if (out.size() > kMaxValueWeight) raise(Fault::limit, "format() made too long a text");
    }
    return out;
  }

 private:
  std::string field(std::string_view text, size_t& pos, int level) {
    size_t end = pos + 1;
    for (int depth = 1; end < text.size(); ++end) {
      depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    if (end >= text.size()) raise(Fault::value_error, "expected '}}' before end of string");
    std::string_view body = text.substr(pos + 1, end - pos - 1);
    pos = end + 1;
    const size_t name_end = std::min(body.find_first_of("!:"), body.size());
    const std::string_view name = body.substr(0, name_end);
    body.remove_prefix(name_end);
    char conversion = 0;
    if (body.starts_with("!")) {
      if (body.size() < 2 || (body.size() > 2 && body[2] != ':'))
        raise(Fault::value_error, "expected ':' after conversion specifier");
      conversion = body[1];
      if (conversion != 'r' && conversion != 's' && conversion != 'a')
        raise(Fault::value_error, "Unknown conversion specifier '{}'", conversion);
      body.remove_prefix(2);
    }
    const Value value = lookup(name);  // takes its number before the fields inside the specification do
    const std::string spec = body.empty() ? "" : format(body.substr(1), level + 1);
    return field_text(value, conversion, spec, escape_);
  }

  Value lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value v = argument(name.substr(0, first_end));
    for (size_t pos = first_end; pos < name.size();) {
      if (name[pos] == '.') {
        const size_t end = std::min(name.find_first_of(".[", pos + 1), name.size());
        v = get_attribute(v, name.substr(pos + 1, end - pos - 1));
        pos = end;
      } else {
        const size_t end = name.find(']', pos);
        if (name[pos] != '[' || end == name.npos) raise(Fault::value_error, "Missing ']' in format string");
        const std::string_view key = name.substr(pos + 1, end - pos - 1);
        const bool number = !key.empty() && std::all_of(key.begin(), key.end(), is_ascii_digit);
        size_t at = 0;
        v = get_item(v, number ? Value(read_number(key, at)) : Value(key));
        pos = end + 1;
      }
    }
    return v;
  }

  Value argument(std::string_view name) {
    const bool number = !name.empty() && std::all_of(name.begin(), name.end(), is_ascii_digit);
    if (!name.empty() && !number) {
      for (const auto& [key, value] : args_.keywords)
        if (key == name) return value;
      raise(Fault::lookup_error, "{}", quote(name));
    }
    if (automatic_ != -1 && (automatic_ == 1) != name.empty()) {
      raise(Fault::value_error, "cannot switch between manual field specification and automatic field numbering");
    }
    automatic_ = name.empty() ? 1 : 0;
    size_t at = 0;
    const size_t index = name.empty() ? next_++ : static_cast<size_t>(read_number(name, at));
    if (index >= args_.positional.size())
      raise(Fault::lookup_error, "Replacement index {} out of range for positional args tuple", index);
    return args_.positional[index];
  }

  const Args& args_;
  bool escape_;
  int automatic_ = -1;  // -1 not known yet, 0 numbered by hand, 1 automatic
  size_t next_ = 0;
};

}  // namespace

std::string pad(std::string_view text, int64_t width, char32_t fill, char align) {
  if (width > kMaxWidth) raise(Fault::limit, "a text width over {} is not supported", kMaxWidth);
  const int64_t missing = width - static_cast<int64_t>(count_chars(text));
  if (missing <= 0) return std::string(text);
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  for (int64_t i = 0; i < before; ++i) append_char(out, fill);
  out += text;
  for (int64_t i = before; i < missing; ++i) append_char(out, fill);
  return out;
}

std::string format_value(const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return str(v);
  if (!v.is_number() && !v.is_string()) {
    raise(Fault::type_error, "unsupported format string passed to {}.__format__", type_name(v));
  }
  const Spec spec = parse_spec(spec_text);
  if (v.is_string()) return format_string(v.text(), spec);
  if (v.is_real()) return format_real(v.as_real(), spec);
  if (spec.type == 'c') {
    std::string out;
    append_char(out, static_cast<char32_t>(std::clamp<int64_t>(v.as_int(), 0, 0x10ffff)));
    return pad(out, spec.width, spec.fill, spec.align == 0 ? '<' : spec.align);
  }
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != 0)
    return format_real(v.as_real(), spec);
  if (spec.type != 0 && std::string_view("dnxXob").find(spec.type) == std::string_view::npos)
    raise(Fault::value_error, "Unknown format code '{}' for object of type '{}'", spec.type, type_name(v));
  if (spec.precision >= 0) raise(Fault::value_error, "Precision not allowed in integer format specifier");
  if (v.is_bool() && spec.type == 0 && spec.grouping == 0) return format_string(str(v), spec);
  return lay_out(v.as_int() < 0, integer_digits(magnitude(v.as_int()), spec.type, spec.alternate, spec.grouping), spec);
}

Value format_percent(const Value& format, const Value& args) {
  const std::string& text = format.text();
  PercentArgs values(args);
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (text[pos] != '%') {
      out += text[pos++];
      continue;
    }
    ++pos;
    const auto at = [&](char c) { return pos < text.size() && text[pos] == c; };
    if (at('%')) {
      out += '%';
      ++pos;
      continue;
    }
    std::optional<Value> named;
    if (at('(')) {
      const size_t end = text.find(')', pos);
      if (end == text.npos) raise(Fault::value_error, "incomplete format key");
      named = values.named(text.substr(pos + 1, end - pos - 1));
      pos = end + 1;
    }
    Conversion c;
    for (; pos < text.size() && std::string_view("-+ 0#").find(text[pos]) != std::string_view::npos; ++pos) {
      (text[pos] == '-'   ? c.left
       : text[pos] == '+' ? c.plus
       : text[pos] == ' ' ? c.space
       : text[pos] == '0' ? c.zero
                          : c.alternate) = true;
    }
    const auto number = [&]() -> int64_t {
      if (!at('*')) return read_number(text, pos);
      ++pos;
      const Value v = values.next();
      if (!v.is_integral()) raise(Fault::type_error, "* wants int");
      return std::clamp<int64_t>(v.as_int(), -kMaxWidth, kMaxWidth);
    };
    c.width = number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (at('.')) {
      ++pos;
      c.precision = std::max<int64_t>(0, number());
    }
    while (at('l') || at('h') || at('L')) ++pos;
    if (pos >= text.size()) raise(Fault::value_error, "incomplete format");
    c.type = text[pos++];
    out += convert(named ? *named : values.next(), c, format.is_markup());
    if (out.size() > kMaxValueWeight) raise(Fault::limit, "a % format made too long a text");
  }
  values.finish();
  return Value(std::move(out), format.is_markup());
}

Value format_braces(const Value& format, const Args& args) {
  return Value(BraceFormatter(args, format.is_markup()).format(format.text(), 0), format.is_markup());
}

}  // namespace ingot::jinja
