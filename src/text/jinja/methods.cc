#include <algorithm>
#include <iterator>

#include "text/jinja/ops.h"
#include "text/jinja/run.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

// What Python's getattr() finds on the values a template can have.
namespace ingot::jinja {
namespace {

struct Method {
  std::string_view name;
  Value (*function)(Run& run, const Value& self, const Args& args);
};

template <std::string (*Convert)(std::string_view)>
Value convert_method(Run&, const Value& self, const Args& args) {
  Params("str method", args, {}, 0);
  return Convert(self.text());
}

template <bool Left, bool Right>
Value strip_method(Run&, const Value& self, const Args& args) {
  const Params p("strip", args, {"chars"}, 0);
  if (p.given(0)) return strip_chars(self.text(), p.string(0), Left, Right);
  std::string_view text = self.text();
  if (Left) text = strip_left(text);
  if (Right) text = strip_right(text);
  return text;
}

template <bool FromRight>
Value split_method(Run&, const Value& self, const Args& args) {
  const Params p("split", args, {"sep", "maxsplit"}, 0);
  const auto parts = split_text(self.text(), p.given(0) ? &p.string(0) : nullptr, p.integer(1, -1), FromRight);
  return Value::list({parts.begin(), parts.end()});
}

template <bool FromRight>
Value partition_method(Run&, const Value& self, const Args& args) {
  const Params p("partition", args, {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& sep = p.string(0);
  if (sep.empty()) raise("empty separator");
  const size_t at = FromRight ? rfind_text(text, sep) : find_text(text, sep);
  if (at != text.npos) return Value::tuple({text.substr(0, at), sep, text.substr(at + sep.size())});
  return FromRight ? Value::tuple({"", "", text}) : Value::tuple({text, "", ""});
}

Value join_method(Run& run, const Value& self, const Args& args) {
  const Params p("join", args, {"iterable"}, 1);
  std::string out;
  size_t index = 0;
  Iter it(p.at(0));
  for (Value v; it.next(v); ++index) {
    if (!v.is_string()) raise("sequence item {}: expected str instance, {} found", index, type_name(v));
    run.spend(1);
    if (index > 0) out += self.text();
    out += v.text();
    if (out.size() > kMaxValueWeight) raise_limit("join() made over {} MiB of text", kMaxValueWeight >> 20);
  }
  return Value(std::move(out));
}

Value replace_method(Run&, const Value& self, const Args& args) {
  const Params p("replace", args, {"old", "new", "count"}, 2);
  return replace_text(self.text(), p.string(0), p.string(1), p.integer(2, -1));
}

// The part of the string that find(), count(), startswith() ... look at, from their optional start and end.
struct Window {
  Window(const Value& self, const Params& p) {
    const int64_t length = static_cast<int64_t>(self.length());
    const SliceRange r = resolve_slice(p.get(1, Value()), p.get(2, Value()), Value(), length);
    start = r.start;
    valid = r.start <= r.stop && !(p.given(1) && p.at(1).as_int() > length);
    text = substring(self, r.start, std::max<int64_t>(0, r.stop - r.start));
  }
  std::string text;
  int64_t start;
  bool valid;
};

template <bool FromRight, bool Raise>
Value find_method(Run&, const Value& self, const Args& args) {
  const Params p("find", args, {"sub", "start", "end"}, 1);
  const Window w(self, p);
  const size_t at = FromRight ? rfind_text(w.text, p.string(0)) : find_text(w.text, p.string(0));
  if (w.valid && at != w.text.npos)
    return w.start + static_cast<int64_t>(count_chars(std::string_view(w.text).substr(0, at)));
  if (Raise) raise("substring not found");
  return -1;
}

Value count_method(Run&, const Value& self, const Args& args) {
  const Params p("count", args, {"sub", "start", "end"}, 1);
  const Window w(self, p);
  const std::string& sub = p.string(0);
  if (!w.valid) return 0;
  if (sub.empty()) return static_cast<int64_t>(count_chars(w.text)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = find_text(w.text, sub, at)) != std::string::npos; at += sub.size()) ++count;
  return count;
}

template <bool AtEnd>
Value affix_method(Run&, const Value& self, const Args& args) {
  constexpr const char* kName = AtEnd ? "endswith" : "startswith";
  const Params p(kName, args, {"prefix", "start", "end"}, 1);
  const Window w(self, p);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) raise("{} first arg must be str or a tuple of str, not {}", kName, type_name(affix));
    return w.valid && (AtEnd ? w.text.ends_with(affix.text()) : w.text.starts_with(affix.text()));
  };
  if (!p.at(0).is_tuple()) return matches(p.at(0));
  return std::any_of(p.at(0).items().begin(), p.at(0).items().end(), matches);
}

template <bool AtEnd>
Value remove_affix(Run&, const Value& self, const Args& args) {
  const Params p("removeprefix", args, {"affix"}, 1);
  const std::string& text = self.text();
  const std::string& affix = p.string(0);
  if (!(AtEnd ? text.ends_with(affix) : text.starts_with(affix))) return self;
  return AtEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
}

Value splitlines_method(Run&, const Value& self, const Args& args) {
  const auto lines = split_lines(self.text(), Params("splitlines", args, {"keepends"}, 0).truthy(0));
  return Value::list({lines.begin(), lines.end()});
}

Value format_method(Run&, const Value& self, const Args& args) { return format_braces(self.text(), args); }

template <bool (*Is)(char32_t)>
Value all_method(Run&, const Value& self, const Args& args) {
  Params("str method", args, {}, 0);
  const auto chars = decode(self.text());
  return !chars.empty() && std::all_of(chars.begin(), chars.end(), Is);
}

template <bool (*Is)(char32_t), bool (*IsNot)(char32_t)>
Value case_method(Run&, const Value& self, const Args& args) {
  Params("str method", args, {}, 0);
  const auto chars = decode(self.text());
  return std::any_of(chars.begin(), chars.end(), Is) && std::none_of(chars.begin(), chars.end(), IsNot);
}

Value dict_get(Run& run, const Value& self, const Args& args) {
  const Params p("get", args, {"key", "default"}, 1);
  run.spend_comparing(p.at(0));
  const Value* found = self.dict().find(p.at(0));
  return found != nullptr ? *found : p.get(1, Value());
}

template <Seq::Type Part>
Value dict_view(Run&, const Value& self, const Args& args) {
  Params("dict method", args, {}, 0);
  std::vector<Value> parts;
  for (const auto& [key, value] : self.dict().entries())
    parts.push_back(Part == Seq::Type::dict_keys     ? key
                    : Part == Seq::Type::dict_values ? value
                                                     : Value::tuple({key, value}));
  return Value(std::make_shared<const Seq>(Part, std::move(parts)));
}

constexpr Method kStringMethods[] = {
    {"capitalize", convert_method<to_capitalized>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"find", find_method<false, false>},
    {"format", format_method},
    {"index", find_method<false, true>},
    {"isalnum", all_method<is_alnum>},
    {"isalpha", all_method<is_alpha>},
    {"isdigit", all_method<is_digit>},
    {"islower", case_method<is_lower, is_upper>},
    {"isspace", all_method<is_space>},
    {"isupper", case_method<is_upper, is_lower>},
    {"join", join_method},
    {"lower", convert_method<to_lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"title", convert_method<to_title>},
    {"upper", convert_method<to_upper>},
};
constexpr Method kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<Seq::Type::dict_items>},
    {"keys", dict_view<Seq::Type::dict_keys>},
    {"values", dict_view<Seq::Type::dict_values>},
};

// What Python's types have and this engine has not.
constexpr std::string_view kUnsupported[] = {
    "as_integer_ratio", "bit_length",  "casefold", "center",     "copy",    "count",     "encode",       "expandtabs",
    "format_map",       "fromkeys",    "index",    "is_integer", "isascii", "isdecimal", "isidentifier", "isnumeric",
    "istitle",          "isprintable", "ljust",    "maketrans",  "rjust",   "swapcase",  "translate",    "zfill"};
// Methods that change their object; the sandbox forbids them.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

template <size_t N>
std::optional<Value> bound(const Value& self, std::string_view name, const Method (&methods)[N]) {
  for (const Method& m : methods) {
    if (m.name != name) continue;
    return make_function([self, function = m.function](Run& run, Args& args) {
      run.spend_reading(self);
      return function(run, self, args);
    });
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> python_attribute(const Value& v, std::string_view name) {
  if (Object* o = v.object()) return o->attribute(name);
  if (v.is_markup() && (name == "format" || name == "join" || name == "replace"))  // these escape their arguments
    raise_unsupported("{} of a string out of the filter 'safe' is not supported", name);
  std::optional<Value> method;
  if (v.is_string()) method = bound(v, name, kStringMethods);
  if (v.is_dict()) method = bound(v, name, kDictMethods);
  if (method) return method;
  if ((v.is_dict() && is_one_of(name, kDictChanges)) || (v.is_list() && is_one_of(name, kListChanges)) ||
      (!v.is_dict() && name.starts_with("__")))
    return Value::undefined(fmt::format("access to attribute {} of '{}' object is unsafe.", quote(name), type_name(v)));
  const bool data = v.is_dict() || v.is_none();  // a dict can have a key of this name
  if (!data && is_one_of(name, kUnsupported)) raise_unsupported("{}.{} is not supported", type_name(v), name);
  return std::nullopt;
}

}  // namespace ingot::jinja
