#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

// Filters that make a text or a number.
namespace ingot::jinja {
namespace {

template <std::string (*Convert)(std::string_view)>
Value convert(Run& run, const Args& args) {
  return Convert(run.text_of(Params("filter", args, {"s"}, 1).at(0)));
}

// Words start after whitespace, dashes and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  bool inside = false;
  size_t word = 0;
  const auto finish = [&](size_t end) {
    size_t first = word;
    if (word < end) next_char(text, first);
    out += to_upper(text.substr(word, first - word)) + to_lower(text.substr(first, end - first));
    word = end;
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const char32_t c = next_char(text, pos);
    const bool separates = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    if (inside == separates) finish(start);
    inside = !separates;
  }
  finish(text.size());
  return out;
}

Value trim(Run& run, const Args& args) {
  const Params p("trim", args, {"value", "chars"}, 1);
  const std::string s = run.text_of(p.at(0));
  return p.given(1) ? Value(strip_chars(s, p.string(1), true, true)) : Value(strip(s));
}

Value replace(Run& run, const Args& args) {
  const Params p("replace", args, {"s", "old", "new", "count"}, 3);
  return replace_text(run.text_of(p.at(0)), run.text_of(p.at(1)), run.text_of(p.at(2)),
                      p.given(3) ? p.integer(3, -1) : -1);
}

Value to_string(Run& run, const Args& args) {
  const Params p("string", args, {"object"}, 1);
  return p.at(0).is_string() ? p.at(0) : Value(run.text_of(p.at(0)));
}

Value safe(Run& run, const Args& args) { return Value(run.text_of(Params("safe", args, {"value"}, 1).at(0)), true); }

Value indent(Run&, const Args& args) {
  const Params p("indent", args, {"s", "width", "first", "blank"}, 1);
  require_defined(p.at(0));
  const bool by_text = p.given(1) && p.at(1).is_string();
  const std::string prefix = by_text ? p.at(1).text() : pad("", p.integer(1, 4), ' ', '<');
  const std::string text = p.string(0) + "\n";
  std::string out = p.truthy(2) ? prefix : "";
  bool first = true;
  for (std::string_view line : split_lines(text, false)) {
    if (!first) out += '\n';
    if (!first && (p.truthy(3) || !line.empty())) out += prefix;
    first = false;
    out += line;
    if (out.size() > kMaxValueWeight) raise_limit("indent() made over {} MiB of text", kMaxValueWeight >> 20);
  }
  return Value(std::move(out));
}

Value format(Run& run, const Args& args) {
  const std::string text = run.text_of(args.positional[0]);
  if (args.keywords.empty())
    return format_percent(text, Value::tuple({args.positional.begin() + 1, args.positional.end()}));
  if (args.positional.size() > 1) raise("can't handle positional and keyword arguments at the same time");
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : args.keywords) dict->set(Value(key), value);
  return format_percent(text, Value(std::shared_ptr<const Dict>(std::move(dict))));
}

Value tojson(Run&, const Args& args) {
  const Params p("tojson", args, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style;
  style.ascii = p.truthy(1);
  style.sort_keys = p.truthy(4);
  if (p.given(2)) {
    style.pretty = true;
    style.item_separator = std::string(",");
    style.indent = p.at(2).is_string() ? p.at(2).text() : pad("", p.integer(2, 0), ' ', '<');
    if (style.indent.size() > 1024) raise_limit("tojson: an indent over 1024 is not supported");
  }
  if (p.given(3)) {
    const auto separators = to_vector(p.at(3));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      raise("tojson: separators must be two strings");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value(dump_json(p.at(0), style));
}

// A number in decimal digits, as Python's int() and float() read it; nothing when it is not one.
template <typename T>
std::optional<T> parse(std::string_view text) {
  text = strip(text);
  if (text.starts_with("+") && !text.starts_with("+-")) text.remove_prefix(1);
  T number{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ptr != text.data() + text.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) raise("the number {} is out of range", quote(text));
  return number;
}

Value to_int(Run&, const Args& args) {
  const Params p("int", args, {"value", "default", "base"}, 1);
  const Value& v = p.at(0);
  require_defined(v);
  if (p.integer(2, 10) != 10) raise_unsupported("int() with a base other than 10 is not supported");
  if (v.is_integral()) return v.as_int();
  if (v.is_string())
    if (const auto n = parse<int64_t>(v.text())) return *n;
  const std::optional<double> d = v.is_real() ? v.as_real() : v.is_string() ? parse<double>(v.text()) : std::nullopt;
  if (!d || std::isnan(*d)) return p.get(1, Value(0));
  if (std::fabs(*d) >= 0x1p63) raise("the number {} is over 63 bits", real_text(*d));
  return static_cast<int64_t>(*d);
}

Value to_real(Run&, const Args& args) {
  const Params p("float", args, {"value", "default"}, 1);
  const Value& v = p.at(0);
  require_defined(v);
  if (v.is_number()) return v.as_real();
  const auto d = v.is_string() ? parse<double>(v.text()) : std::nullopt;
  return d ? Value(*d) : p.get(1, Value(0.0));
}

constexpr FilterEntry kTextFilters[] = {
    {"capitalize", convert<to_capitalized>},
    {"float", to_real},
    {"format", format},
    {"indent", indent},
    {"int", to_int},
    {"lower", convert<to_lower>},
    {"replace", replace},
    {"safe", safe},
    {"string", to_string},
    {"title", convert<title_words>},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", convert<to_upper>},
};

}  // namespace

FilterTable text_filters() { return {std::begin(kTextFilters), std::end(kTextFilters)}; }

}  // namespace ingot::jinja
