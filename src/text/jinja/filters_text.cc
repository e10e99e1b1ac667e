#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

// jinja2's soft_str(): strings stay what they are, others become strings.
Value soft(Interpreter& interpreter, const Value& v) { return v.is_string() ? v : Value(interpreter.text_of(v)); }

template <std::string (*Convert)(std::string_view)>
Value convert(Interpreter& interpreter, Args& args) {
  const Params p("filter", args, {"s"}, 1);
  const Value s = soft(interpreter, p.at(0));
  return Value(Convert(s.text()), s.is_markup());
}

// Words start after whitespace, dashes and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  const auto separates = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    size_t next = pos;
    const bool separator = separates(next_char(text, next));
    while (next < text.size()) {
      size_t after = next;
      if (separates(next_char(text, after)) != separator) break;
      next = after;
    }
    pos = next;
    size_t first_end = start;
    next_char(text, first_end);
    out += to_upper(text.substr(start, first_end - start));
    out += to_lower(text.substr(first_end, pos - first_end));
  }
  return out;
}

Value title(Interpreter& interpreter, Args& args) {
  return Value(title_words(soft(interpreter, Params("title", args, {"s"}, 1).at(0)).text()));
}

Value trim(Interpreter& interpreter, Args& args) {
  const Params p("trim", args, {"value", "chars"}, 1);
  const Value s = soft(interpreter, p.at(0));
  if (p.given(1) && !p.at(1).is_none()) return Value(strip_chars(s.text(), p.string(1), true, true), s.is_markup());
  return Value(std::string(strip(s.text())), s.is_markup());
}

Value replace(Interpreter& interpreter, Args& args) {
  const Params p("replace", args, {"s", "old", "new", "count"}, 3);
  const bool all = !p.given(3) || p.at(3).is_none();
  return Value(replace_text(interpreter.text_of(p.at(0)), interpreter.text_of(p.at(1)), interpreter.text_of(p.at(2)),
                            all ? -1 : p.integer(3, -1)));
}

Value to_string(Interpreter& interpreter, Args& args) {
  return soft(interpreter, Params("string", args, {"object"}, 1).at(0));
}

Value safe(Interpreter& interpreter, Args& args) {
  return Value(interpreter.text_of(Params("safe", args, {"value"}, 1).at(0)), true);
}

Value escape(Interpreter& interpreter, Args& args) {
  const Params p("escape", args, {"s"}, 1);
  return p.at(0).is_markup() ? p.at(0) : Value(escape_html(interpreter.text_of(p.at(0))), true);
}

Value force_escape(Interpreter& interpreter, Args& args) {
  return Value(escape_html(interpreter.text_of(Params("forceescape", args, {"value"}, 1).at(0))), true);
}

Value indent(Interpreter&, Args& args) {
  const Params p("indent", args, {"s", "width", "first", "blank"}, 1);
  require_defined(p.at(0));
  if (!p.at(0).is_string()) raise(Fault::type_error, "indent() needs a string, not {}", type_name(p.at(0)));
  const bool by_text = p.given(1) && p.at(1).is_string();
  const std::string prefix = by_text ? p.at(1).text() : pad("", p.integer(1, 4), ' ', '<');
  const bool blank = p.truthy(3, false);
  const std::string text = p.at(0).text() + "\n";
  std::string out = p.truthy(2, false) ? prefix : "";
  bool first = true;
  for (std::string_view line : split_lines(text, false)) {
    if (!first) {
      out += '\n';
      if (blank || !line.empty()) out += prefix;
    }
    first = false;
    out += line;
    if (out.size() > kMaxValueWeight) raise(Fault::limit, "indent() made over {} MiB of text", kMaxValueWeight >> 20);
  }
  return Value(std::move(out), p.at(0).is_markup());
}

Value center(Interpreter& interpreter, Args& args) {
  const Params p("center", args, {"value", "width"}, 1);
  Args width;
  width.positional.push_back(p.get(1, Value(80)));
  return interpreter.call(get_attribute(soft(interpreter, p.at(0)), "center"), std::move(width));
}

Value truncate(Interpreter&, Args& args) {
  const Params p("truncate", args, {"s", "length", "killwords", "end", "leeway"}, 1);
  const Value end = p.get(3, Value("..."));
  if (!end.is_string()) raise(Fault::type_error, "truncate() needs a string as end, not {}", type_name(end));
  const int64_t length = p.integer(1, 255);
  const int64_t leeway = p.given(4) && !p.at(4).is_none() ? p.integer(4, 5) : 5;
  const int64_t end_length = static_cast<int64_t>(end.length());
  if (length < end_length) raise(Fault::value_error, "expected length >= {}, got {}", end_length, length);
  if (leeway < 0) raise(Fault::value_error, "expected leeway >= 0, got {}", leeway);
  const int64_t size = length_of(p.at(0)).value_or(-1);
  if (size >= 0 && (size <= leeway || size - leeway <= length)) return p.at(0);
  if (!p.at(0).is_string()) raise(Fault::type_error, "truncate() needs a string, not {}", type_name(p.at(0)));
  std::string head = substring(p.at(0), 0, length - end_length);
  if (!p.truthy(2, false)) {
    const size_t space = head.rfind(' ');
    if (space != head.npos) head.resize(space);
  }
  return apply(BinaryOp::add, Value(std::move(head), p.at(0).is_markup()), end);
}

Value wordcount(Interpreter& interpreter, Args& args) {
  const Value s = soft(interpreter, Params("wordcount", args, {"s"}, 1).at(0));
  int64_t count = 0;
  bool in_word = false;
  for (char32_t c : decode(s.text())) {
    if (is_word(c) && !in_word) ++count;
    in_word = is_word(c);
  }
  return count;
}

Value format(Interpreter& interpreter, Args& args) {
  const Value text = soft(interpreter, args.positional[0]);
  if (args.positional.size() > 1 && !args.keywords.empty())
    raise(Fault::runtime_error, "can't handle positional and keyword arguments at the same time");
  if (args.keywords.empty())
    return format_percent(text, Value::tuple({args.positional.begin() + 1, args.positional.end()}));
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : args.keywords) dict->set(Value(key), value);
  return format_percent(text, Value(std::shared_ptr<const Dict>(std::move(dict))));
}

std::string percent_encode(std::string_view text, bool query) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

Value urlencode(Interpreter& interpreter, Args& args) {
  const Params p("urlencode", args, {"value"}, 1);
  const Value& v = p.at(0);
  auto items =
      v.is_string()
          ? nullptr
          : try_iterate(v.is_dict() ? Value(std::make_shared<DictView>(v.dict_ref(), DictView::Part::items)) : v);
  if (!items) return Value(percent_encode(interpreter.text_of(v), false));
  std::string out;
  for (Value pair; items->next(pair);) {
    const auto parts = to_vector(pair);
    if (parts.size() != 2) raise(Fault::value_error, "urlencode needs pairs of key and value");
    if (!out.empty()) out += '&';
    out += percent_encode(interpreter.text_of(parts[0]), true);
    out += '=';
    out += percent_encode(interpreter.text_of(parts[1]), true);
  }
  return Value(std::move(out));
}

Value tojson(Interpreter&, Args& args) {
  const Params p("tojson", args, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style;
  style.ascii = p.truthy(1, false);
  style.sort_keys = p.truthy(4, false);
  if (p.given(2) && !p.at(2).is_none()) {
    style.pretty = true;
    style.item_separator.assign(1, ',');
    style.indent = p.at(2).is_string() ? p.at(2).text() : pad("", p.integer(2, 0), ' ', '<');
    if (style.indent.size() > 1024) raise(Fault::limit, "tojson: an indent over 1024 is not supported");
  }
  if (p.given(3) && !p.at(3).is_none()) {
    const auto separators = to_vector(p.at(3));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      raise(Fault::type_error, "tojson: separators must be two strings");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value(dump_json(p.at(0), style));
}

constexpr FilterEntry kTextFilters[] = {
    {"capitalize", convert<to_capitalized>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"lower", convert<to_lower>},
    {"replace", replace},
    {"safe", safe},
    {"string", to_string},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", convert<to_upper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
};

}  // namespace

Table<FilterEntry> text_filters() { return {std::begin(kTextFilters), std::end(kTextFilters)}; }

}  // namespace ingot::jinja
