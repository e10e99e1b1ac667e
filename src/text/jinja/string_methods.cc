#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

// A result has the type of the string the method was called on: str or Markup.
Value like(const Value& self, std::string text) { return Value(std::move(text), self.is_markup()); }

std::vector<Value> all_like(const Value& self, const std::vector<std::string>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const auto& part : parts) out.push_back(like(self, part));
  return out;
}

// An argument that Markup escapes before using it.
std::string escaped_for(const Value& self, const Value& arg) {
  return self.is_markup() && !arg.is_markup() ? escape_html(arg.text()) : arg.text();
}

template <std::string (*Convert)(std::string_view)>
Value convert_case(Interpreter&, const Value& self, Args& args) {
  Params("str method", args, {}, 0);
  return like(self, Convert(self.text()));
}

template <bool Left, bool Right>
Value strip_method(Interpreter&, const Value& self, Args& args) {
  const Params p("strip", args, {"chars"}, 0);
  if (p.given(0) && !p.at(0).is_none()) return like(self, strip_chars(self.text(), p.string(0), Left, Right));
  std::string_view text = self.text();
  if (Left) text = strip_left(text);
  if (Right) text = strip_right(text);
  return like(self, std::string(text));
}

template <bool FromRight>
Value split_method(Interpreter&, const Value& self, Args& args) {
  const Params p("split", args, {"sep", "maxsplit"}, 0);
  const bool whitespace = !p.given(0) || p.at(0).is_none();
  const std::string* sep = whitespace ? nullptr : &p.string(0);
  return Value::list(all_like(self, split_text(self.text(), sep, p.integer(1, -1), FromRight)));
}

template <bool FromRight>
Value partition_method(Interpreter&, const Value& self, Args& args) {
  const Params p("partition", args, {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& sep = p.string(0);
  if (sep.empty()) raise(Fault::value_error, "empty separator");
  const size_t at = FromRight ? rfind_text(text, sep) : find_text(text, sep);
  if (at == text.npos) {
    return Value::tuple(
        all_like(self, FromRight ? std::vector<std::string>{"", "", text} : std::vector<std::string>{text, "", ""}));
  }
  return Value::tuple(all_like(self, {text.substr(0, at), sep, text.substr(at + sep.size())}));
}

Value join_method(Interpreter&, const Value& self, Args& args) {
  const Params p("join", args, {"iterable"}, 1);
  std::string out;
  size_t index = 0;
  const auto it = iterate(p.at(0));
  for (Value v; it->next(v); ++index) {
    if (!v.is_string() && !self.is_markup())
      raise(Fault::type_error, "sequence item {}: expected str instance, {} found", index, type_name(v));
    if (index > 0) out += self.text();
    out += self.is_markup() && !v.is_markup() ? escape_html(str(v)) : v.text();
    if (out.size() > kMaxValueWeight) raise(Fault::limit, "join() made over {} MiB of text", kMaxValueWeight >> 20);
  }
  return like(self, std::move(out));
}

Value replace_method(Interpreter&, const Value& self, Args& args) {
  const Params p("replace", args, {"old", "new", "count"}, 2);
  p.string(1);
  return like(self, replace_text(self.text(), p.string(0), escaped_for(self, p.at(1)), p.integer(2, -1)));
}

// The part of the string that find(), count(), startswith() ... look at, from their optional start and end.
struct Window {
  Window(const Value& self, const Params& p, size_t first) {
    const SliceRange r =
        resolve_slice(p.get(first, Value()), p.get(first + 1, Value()), Value(), static_cast<int64_t>(self.length()));
    start = r.start;
    valid = r.start <= r.stop && !(p.given(first) && p.at(first).is_integral() &&
                                   p.at(first).as_int() > static_cast<int64_t>(self.length()));
    text = substring(self, r.start, std::max<int64_t>(0, r.stop - r.start));
  }
  std::string text;
  int64_t start;
  bool valid;
};

int64_t find_in(const Value& self, Args& args, bool from_right) {
  const Params p("find", args, {"sub", "start", "end"}, 1);
  const Window w(self, p, 1);
  if (!w.valid) return -1;
  const size_t at = from_right ? rfind_text(w.text, p.string(0)) : find_text(w.text, p.string(0));
  if (at == std::string::npos) return -1;
  return w.start + static_cast<int64_t>(count_chars(std::string_view(w.text).substr(0, at)));
}

template <bool FromRight>
Value find_method(Interpreter&, const Value& self, Args& args) {
  return find_in(self, args, FromRight);
}

template <bool FromRight>
Value index_method(Interpreter&, const Value& self, Args& args) {
  const int64_t at = find_in(self, args, FromRight);
  if (at < 0) raise(Fault::value_error, "substring not found");
  return at;
}

Value count_method(Interpreter&, const Value& self, Args& args) {
  const Params p("count", args, {"sub", "start", "end"}, 1);
  const Window w(self, p, 1);
  const std::string& sub = p.string(0);
  if (!w.valid) return 0;
  if (sub.empty()) return static_cast<int64_t>(count_chars(w.text)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = find_text(w.text, sub, at)) != std::string::npos; at += sub.size()) ++count;
  return count;
}

template <bool AtEnd>
Value affix_method(Interpreter&, const Value& self, Args& args) {
  const char* name = AtEnd ? "endswith" : "startswith";
  const Params p(name, args, {"prefix", "start", "end"}, 1);
  const Window w(self, p, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      raise(Fault::type_error, "{} first arg must be str or a tuple of str, not {}", name, type_name(affix));
    return w.valid && (AtEnd ? w.text.ends_with(affix.text()) : w.text.starts_with(affix.text()));
  };
  if (!p.at(0).is_tuple()) return matches(p.at(0));
  const auto& affixes = p.at(0).items();
  return std::any_of(affixes.begin(), affixes.end(), matches);
}

template <bool AtEnd>
Value remove_affix(Interpreter&, const Value& self, Args& args) {
  const Params p("removeprefix", args, {"affix"}, 1);
  const std::string& text = self.text();
  const std::string& affix = p.string(0);
  if (AtEnd ? text.ends_with(affix) : text.starts_with(affix))
    return like(self, AtEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
  return self;
}

template <char Align>
Value justify_method(Interpreter&, const Value& self, Args& args) {
  const Params p("justify", args, {"width", "fillchar"}, 1);
  char32_t fill = ' ';
  if (p.given(1)) {
    size_t pos = 0;
    const std::string text = p.string(1).empty() ? "" : escaped_for(self, p.at(1));
    if (count_chars(text) != 1) raise(Fault::type_error, "The fill character must be exactly one character long");
    fill = next_char(text, pos);
  }
  const int64_t width = p.integer(0, 0);
  if (Align != '^') return like(self, pad(self.text(), width, fill, Align));
  // str.center() puts the odd one out on the left when the width is odd.
  const int64_t length = static_cast<int64_t>(self.length());
  const int64_t missing = std::max<int64_t>(0, width - length);
  const int64_t before = missing / 2 + (missing & width & 1);
  return like(self, pad(pad(self.text(), length + before, fill, '>'), length + missing, fill, '<'));
}

Value zfill_method(Interpreter&, const Value& self, Args& args) {
  const Params p("zfill", args, {"width"}, 1);
  const std::string& text = self.text();
  const bool sign = text.starts_with("+") || text.starts_with("-");
  const int64_t width = p.integer(0, 0) - (sign ? 1 : 0);
  return like(self, text.substr(0, sign) + pad(text.substr(sign), width, '0', '>'));
}

Value splitlines_method(Interpreter&, const Value& self, Args& args) {
  const Params p("splitlines", args, {"keepends"}, 0);
  std::vector<Value> lines;
  for (std::string_view line : split_lines(self.text(), p.truthy(0, false)))
    lines.push_back(like(self, std::string(line)));
  return Value::list(std::move(lines));
}

Value expandtabs_method(Interpreter&, const Value& self, Args& args) {
  const Params p("expandtabs", args, {"tabsize"}, 0);
  const int64_t size = p.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (size_t pos = 0; pos < self.text().size();) {
    const char32_t c = next_char(self.text(), pos);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      if (out.size() + static_cast<uint64_t>(spaces) > kMaxValueWeight)
        raise(Fault::limit, "expandtabs() made too long a text");
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      append_char(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like(self, std::move(out));
}

Value format_method(Interpreter&, const Value& self, Args& args) { return format_braces(self, args); }

Value format_map_method(Interpreter&, const Value& self, Args& args) {
  const Params p("format_map", args, {"mapping"}, 1);
  if (!p.at(0).is_dict()) raise(Fault::type_error, "format_map() wants a dict, not {}", type_name(p.at(0)));
  Args named;
  for (const auto& [key, value] : p.at(0).dict().entries())
    if (key.is_string()) named.keywords.emplace_back(key.text(), value);
  return format_braces(self, named);
}

template <bool (*Is)(char32_t)>
Value all_method(Interpreter&, const Value& self, Args& args) {
  Params("str method", args, {}, 0);
  const auto chars = decode(self.text());
  return !chars.empty() && std::all_of(chars.begin(), chars.end(), Is);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

Value isprintable_method(Interpreter&, const Value& self, Args&) {
  const auto chars = decode(self.text());
  return std::all_of(chars.begin(), chars.end(), is_printable);
}

Value isascii_method(Interpreter&, const Value& self, Args&) {
  return std::all_of(self.text().begin(), self.text().end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Value isidentifier_method(Interpreter&, const Value& self, Args&) {
  const auto chars = decode(self.text());
  if (chars.empty() || !(chars[0] == '_' || is_alpha(chars[0]))) return false;
  return std::all_of(chars.begin(), chars.end(), [](char32_t c) { return c == '_' || is_alpha(c) || is_decimal(c); });
}

template <bool (*Is)(char32_t), bool (*IsNot)(char32_t)>
Value case_method(Interpreter&, const Value& self, Args&) {
  bool cased = false;
  for (char32_t c : decode(self.text())) {
    if (IsNot(c) || is_title(c)) return false;
    cased = cased || Is(c);
  }
  return cased;
}

Value istitle_method(Interpreter&, const Value& self, Args&) {
  bool cased = false;
  bool after_cased = false;
  for (char32_t c : decode(self.text())) {
    const bool upper = is_upper(c) || is_title(c);
    const bool lower = is_lower(c);
    if ((upper && after_cased) || (lower && !after_cased)) return false;
    cased = cased || upper || lower;
    after_cased = upper || lower;
  }
  return cased;
}

constexpr Method kMethods[] = {
    {"capitalize", convert_case<to_capitalized>},
    {"casefold", convert_case<to_fold>},
    {"center", justify_method<'^'>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"expandtabs", expandtabs_method},
    {"find", find_method<false>},
    {"format", format_method},
    {"format_map", format_map_method},
    {"index", index_method<false>},
    {"isalnum", all_method<is_alnum>},
    {"isalpha", all_method<is_alpha>},
    {"isascii", isascii_method},
    {"isdecimal", all_method<is_decimal>},
    {"isdigit", all_method<is_digit>},
    {"isidentifier", isidentifier_method},
    {"islower", case_method<is_lower, is_upper>},
    {"isnumeric", all_method<is_numeric>},
    {"isprintable", isprintable_method},
    {"isspace", all_method<is_space>},
    {"istitle", istitle_method},
    {"isupper", case_method<is_upper, is_lower>},
    {"join", join_method},
    {"ljust", justify_method<'<'>},
    {"lower", convert_case<to_lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"rfind", find_method<true>},
    {"rindex", index_method<true>},
    {"rjust", justify_method<'>'>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"swapcase", convert_case<to_swapped>},
    {"title", convert_case<to_title>},
    {"upper", convert_case<to_upper>},
    {"zfill", zfill_method},
};

}  // namespace

const Method* string_method(std::string_view name, bool& unsupported) {
  for (const Method& m : kMethods)
    if (m.name == name) return &m;
  unsupported = name == "encode" || name == "translate" || name == "maketrans";
  return nullptr;
}

}  // namespace ingot::jinja
