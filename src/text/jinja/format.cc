#include <algorithm>
#include <cmath>

#include "text/jinja/args.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

// The part of Python's two format languages that chat templates can be expected to use; the rest is named in an error.
namespace ingot::jinja {
namespace {

// [[fill]align][+][0][width][.precision][type] of braces, and [-+0][width][.precision]type of a percent sign.
struct Spec {
  char32_t fill = ' ';
  char align = 0;  // of '<', '>', '^'
  bool plus = false;
  bool zero = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// Reads a format from left to right.
struct Reader {
  const std::string& text;
  size_t pos = 0;

  bool done() const { return pos >= text.size(); }
  bool at(std::string_view chars) const { return !done() && chars.find(text[pos]) != chars.npos; }
  bool skip(char c) { return !done() && text[pos] == c && ++pos != 0; }
  int64_t number() {
    int64_t n = 0;
    for (; at("0123456789"); ++pos) {
      n = n * 10 + (text[pos] - '0');
      if (n > 1 << 20) raise_limit("a format width or precision is over {}", 1 << 20);
    }
    return n;
  }
  void width_precision_type(Spec& spec) {
    spec.width = number();
    if (skip('.')) spec.precision = number();
    if (!done()) spec.type = text[pos++];
  }
};

std::string lay_out(const Value& v, const Spec& spec) {
  if (v.is_string() || spec.type == 's' || spec.type == 'r') {
    std::string text = spec.type == 'r' ? repr(v) : str(v);
    if (spec.type != 0 && spec.type != 's' && spec.type != 'r')
      raise("Unknown format code '{}' for object of type 'str'", spec.type);
    if (spec.precision >= 0) {
      std::vector<char32_t> chars = decode(text);
      chars.resize(std::min(chars.size(), static_cast<size_t>(spec.precision)));
      text = encode(chars);
    }
    return pad(std::move(text), spec.width, spec.fill, spec.align == 0 ? '<' : spec.align);
  }
  if (!v.is_number()) {
    if (spec.type == 0 && spec.width == 0 && spec.precision < 0) return str(v);
    raise("a format wants a number or a string, not {}", type_name(v));
  }
  const double d = v.as_real();
  std::string digits;  // without the sign
  if (spec.type == 'f') {
    if (spec.precision > 400) raise_limit("a float precision over 400 is not supported");
    digits = fmt::format("{:.{}f}", std::fabs(d), spec.precision < 0 ? 6 : static_cast<int>(spec.precision));
  } else if (spec.type == 0 && spec.precision < 0) {
    digits = v.is_bool() && spec.width == 0 ? str(v)
             : v.is_real()                  ? real_text(std::fabs(d))
                                            : std::to_string(v.as_int());
  } else if ((spec.type == 'd' || spec.type == 'x') && spec.precision < 0) {
    if (!v.is_integral()) raise("Unknown format code '{}' for object of type '{}'", spec.type, type_name(v));
    digits = spec.type == 'd' ? std::to_string(v.as_int()) : fmt::format("{:x}", v.as_int());
  } else {
    raise_unsupported("the format code '{}' for a number is not supported",
                      spec.type == 0 ? "." : std::string_view(&spec.type, 1));
  }
  if (digits.starts_with("-")) digits.erase(0, 1);
  const std::string sign = std::signbit(d) ? "-" : spec.plus ? "+" : "";
  if (spec.zero && spec.align == 0)
    return sign + pad(std::move(digits), spec.width - static_cast<int64_t>(sign.size()), '0', '>');
  return pad(sign + digits, spec.width, spec.fill, spec.align == 0 ? '>' : spec.align);
}

// What stands behind the colon of a replacement field.
Spec parse_spec(const std::string& text) {
  Spec spec;
  Reader in{text};
  if (!in.done()) {
    size_t after = 0;
    const char32_t first = next_char(text, after);
    const size_t align =
        after < text.size() && std::string_view("<>^").find(text[after]) != std::string_view::npos ? after : 0;
    if (align != 0) spec.fill = first;
    in.pos = align;
    if (in.at("<>^")) spec.align = text[in.pos++];
  }
  spec.plus = in.skip('+');
  spec.zero = in.skip('0');
  in.width_precision_type(spec);
  if (!in.done()) raise_unsupported("the format specification {} is not supported", quote(text));
  return spec;
}

}  // namespace

Value format_percent(const std::string& format, const Value& args) {
  std::string out;
  size_t used = 0;
  Reader in{format};
  while (!in.done()) {
    if (!in.skip('%')) {
      out += format[in.pos++];
      continue;
    }
    if (in.skip('%')) {
      out += '%';
      continue;
    }
    const Value* value = nullptr;
    if (in.skip('(')) {
      const size_t end = format.find(')', in.pos);
      if (end == format.npos) raise("incomplete format key");
      if (!args.is_dict()) raise("format requires a mapping");
      const std::string key = format.substr(in.pos, end - in.pos);
      value = args.dict().find(Value(key));
      if (value == nullptr) raise("{}", quote(key));
      in.pos = end + 1;
    } else {
      if (used >= (args.is_tuple() ? args.items().size() : 1)) raise("not enough arguments for format string");
      value = args.is_tuple() ? &args.items()[used] : &args;
      ++used;
    }
    Spec spec;
    spec.align = '>';
    for (; in.at("-+0"); ++in.pos) {
      if (format[in.pos] == '-') spec.align = '<';
      if (format[in.pos] == '+') spec.plus = true;
      if (format[in.pos] == '0') spec.zero = true;
    }
    if (spec.zero && spec.align == '>') spec.align = 0;
    in.width_precision_type(spec);
    if (spec.type == 0) raise("incomplete format");
    if (spec.type == 'i') spec.type = 'd';
    if (std::string_view("srdfx").find(spec.type) == std::string_view::npos)
      raise_unsupported("the format character '{}' is not supported", spec.type);
    const bool as_text = spec.type == 's' || spec.type == 'r';
    if (as_text && spec.align == 0) spec.align = '>';
    if (!as_text) require_defined(*value);
    if (!as_text && !value->is_number())
      raise("%{} format: a real number is required, not {}", spec.type, type_name(*value));
    const bool truncate = spec.type == 'd' && value->is_real() && std::fabs(value->as_real()) < 0x1p63;
    out += lay_out(truncate ? Value(static_cast<int64_t>(value->as_real())) : *value, spec);
  }
  const size_t given = args.is_tuple()                                           ? args.items().size()
                       : args.is_dict() || args.is_list() || args.is_undefined() ? 0
                                                                                 : 1;
  if (used < given) raise("not all arguments converted during string formatting");
  return Value(std::move(out));
}

Value format_braces(const std::string& format, const Args& args) {
  std::string out;
  size_t automatic = 0;
  Reader in{format};
  while (!in.done()) {
    if (in.at("{}") && in.pos + 1 < format.size() && format[in.pos + 1] == format[in.pos]) {
      out += format[in.pos];
      in.pos += 2;
      continue;
    }
    if (in.at("}")) raise("Single '}}' encountered in format string");
    if (!in.skip('{')) {
      out += format[in.pos++];
      continue;
    }
    const size_t end = format.find('}', in.pos);
    if (end == format.npos) raise("expected '}}' before end of string");
    std::string field = format.substr(in.pos, end - in.pos);
    in.pos = end + 1;
    Spec spec;
    if (const size_t colon = field.find(':'); colon != field.npos) {
      spec = parse_spec(field.substr(colon + 1));
      field.resize(colon);
    }
    if (field.find_first_of("![.{") != field.npos)
      raise_unsupported("the replacement field {} is not supported", quote(field));
    if (field.find_first_not_of("0123456789") == field.npos && field.size() < 6) {
      const size_t index = field.empty() ? automatic++ : std::stoul(field);
      if (index >= args.positional.size()) raise("Replacement index {} out of range for positional args tuple", index);
      out += lay_out(args.positional[index], spec);
    } else {
      const auto it = std::find_if(args.keywords.begin(), args.keywords.end(),
                                   [&](const auto& keyword) { return keyword.first == field; });
      if (it == args.keywords.end()) raise("{}", quote(field));
      out += lay_out(it->second, spec);
    }
  }
  return Value(std::move(out));
}

}  // namespace ingot::jinja
