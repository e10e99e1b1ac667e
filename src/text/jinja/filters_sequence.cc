#include <algorithm>
#include <list>

#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

Value generator_over(std::vector<Value> items, std::string_view type = "generator") {
  const Value list = Value::list(std::move(items));
  auto next = [list, i = size_t{0}](Value& out) mutable {
    if (i >= list.items().size()) return false;
    out = list.items()[i++];
    return true;
  };
  return Value(std::make_shared<Generator>(type, std::move(next), std::initializer_list<Value>{list}));
}

// Items in Python's reversed() order; nothing when the type has none.
std::optional<std::vector<Value>> reversed_items(const Value& v) {
  if (Object* o = v.object()) {
    auto it = o->reversed();
    if (!it) return std::nullopt;
    std::vector<Value> items;
    for (Value item; it->next(item);) items.push_back(std::move(item));
    return items;
  }
  if (!try_iterate(v)) return std::nullopt;
  std::vector<Value> items = to_vector(v);
  std::reverse(items.begin(), items.end());
  return items;
}

Value first(Interpreter&, Args& args) {
  const Params p("first", args, {"seq"}, 1);
  Value v;
  if (iterate(p.at(0))->next(v)) return v;
  return Value::undefined("No first item, sequence was empty.");
}

Value last(Interpreter&, Args& args) {
  const Params p("last", args, {"seq"}, 1);
  const Value& v = p.at(0);
  if (v.seq() != nullptr && !v.items().empty()) return v.items().back();
  if (v.is_markup() && !v.text().empty()) return Value(substring(v, static_cast<int64_t>(v.length()) - 1, 1), true);
  auto items = reversed_items(v);
  if (!items) raise(Fault::type_error, "'{}' object is not reversible", type_name(v));
  return items->empty() ? Value::undefined("No last item, sequence was empty.") : items->front();
}

Value length(Interpreter&, Args& args) {
  const Params p("length", args, {"obj"}, 1);
  const auto n = length_of(p.at(0));
  if (!n) raise(Fault::type_error, "object of type '{}' has no len()", type_name(p.at(0)));
  return *n;
}

Value to_list(Interpreter&, Args& args) { return Value::list(to_vector(Params("list", args, {"value"}, 1).at(0))); }

Value reverse(Interpreter&, Args& args) {
  const Params p("reverse", args, {"value"}, 1);
  const Value& v = p.at(0);
  if (v.is_string()) {
    auto chars = decode(v.text());
    std::reverse(chars.begin(), chars.end());
    return Value(encode(chars), v.is_markup());
  }
  if (auto items = reversed_items(v))
    return generator_over(std::move(*items), v.is_list() ? "list_reverseiterator" : "reversed");
  if (!try_iterate(v)) raise(Fault::runtime_error, "argument must be iterable");
  std::vector<Value> items = to_vector(v);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

// Sorts `items` by their keys; equal ones keep their order.
std::vector<Value> sorted_by(Interpreter& interpreter, std::vector<Value> items, std::vector<Value> keys,
                             bool reverse) {
  // A list's sort is stable, and safe even when the order makes no sense, as with NaN.
  std::list<size_t> order;
  for (size_t i = 0; i < items.size(); ++i) order.push_back(i);
  order.sort([&](size_t a, size_t b) {
    interpreter.spend(1 + (std::min(keys[a].weight(), keys[b].weight()) >> 8));
    return reverse ? compare(keys[b], keys[a], "<") < 0 : compare(keys[a], keys[b], "<") < 0;
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

Value sort(Interpreter& interpreter, Args& args) {
  const Params p("sort", args, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  std::vector<Value> items = to_vector(p.at(0));
  const bool fold = !p.truthy(2, false);
  std::vector<Value> attributes;  // "a,b" sorts by a, then by b
  const Value attribute = p.get(3, Value());
  if (attribute.is_string()) {
    std::string_view rest = attribute.text();
    for (size_t comma; (comma = rest.find(',')) != rest.npos; rest.remove_prefix(comma + 1))
      attributes.emplace_back(rest.substr(0, comma));
    attributes.emplace_back(rest);
  } else {
    attributes.push_back(attribute);
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const Value& a : attributes) {
      const Value v = follow_attribute(interpreter, item, a);
      key.push_back(fold ? ignore_case(interpreter, v) : v);
    }
    keys.push_back(Value::list(std::move(key)));
  }
  return Value::list(sorted_by(interpreter, std::move(items), std::move(keys), p.truthy(1, false)));
}

Value dictsort(Interpreter& interpreter, Args& args) {
  const Params p("dictsort", args, {"value", "case_sensitive", "by", "reverse"}, 1);
  require_defined(p.at(0));
  const Value by = p.get(2, Value("key"));
  const bool by_value = by.is_string() && by.text() == "value";
  if (!by_value && !(by.is_string() && by.text() == "key"))
    raise(Fault::runtime_error, "You can only sort by either \"key\" or \"value\"");
  if (!p.at(0).is_dict()) raise(Fault::type_error, "'{}' object has no attribute 'items'", type_name(p.at(0)));
  const bool fold = !p.truthy(1, false);
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : p.at(0).dict().entries()) {
    const Value& v = by_value ? value : key;
    keys.push_back(fold ? ignore_case(interpreter, v) : v);
    items.push_back(Value::tuple({key, value}));
  }
  return Value::list(sorted_by(interpreter, std::move(items), std::move(keys), p.truthy(3, false)));
}

Value unique(Interpreter& interpreter, Args& args) {
  const Params p("unique", args, {"value", "case_sensitive", "attribute"}, 1);
  const bool fold = !p.truthy(1, false);
  const Value attribute = p.get(2, Value());
  std::shared_ptr<Iter> items = iterate(p.at(0));
  auto seen = std::make_shared<Dict>();
  auto next = [&interpreter, items, seen, attribute, fold](Value& out) {
    while (items->next(out)) {
      interpreter.spend(1);
      const Value v = follow_attribute(interpreter, out, attribute);
      const Value key = fold ? ignore_case(interpreter, v) : v;
      interpreter.spend_comparing(key);
      if (seen->find(key) != nullptr) continue;
      seen->set(key, Value());
      return true;
    }
    return false;
  };
  return make_generator(std::move(next), {p.at(0), attribute});
}

template <bool Greatest>
Value extreme(Interpreter& interpreter, Args& args) {
  const Params p(Greatest ? "max" : "min", args, {"value", "case_sensitive", "attribute"}, 1);
  const bool fold = !p.truthy(1, false);
  const auto items = iterate(p.at(0));
  std::optional<Value> best;
  Value best_key;
  for (Value item; items->next(item);) {
    interpreter.spend(1);
    const Value v = follow_attribute(interpreter, item, p.get(2, Value()));
    Value key = fold ? ignore_case(interpreter, v) : v;
    interpreter.spend_comparing(key);
    if (best && !(Greatest ? compare(key, best_key, ">") > 0 : compare(key, best_key, "<") < 0)) continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Interpreter& interpreter, Args& args) {
  const Params p("sum", args, {"iterable", "attribute", "start"}, 1);
  Value total = p.get(2, Value(0));
  if (total.is_string()) raise(Fault::type_error, "sum() can't sum strings [use ''.join(seq) instead]");
  const auto items = iterate(p.at(0));
  for (Value item; items->next(item);) {
    interpreter.spend(1);
    interpreter.spend_copying(total);
    total = apply(BinaryOp::add, total, follow_attribute(interpreter, item, p.get(1, Value())));
  }
  return total;
}

Value join(Interpreter& interpreter, Args& args) {
  const Params p("join", args, {"value", "d", "attribute"}, 1);
  const std::string separator = interpreter.text_of(p.get(1, Value("")));
  const auto items = iterate(p.at(0));
  std::string out;
  bool first = true;
  for (Value item; items->next(item); first = false) {
    interpreter.spend(1);
    if (!first) out += separator;
    out += interpreter.text_of(follow_attribute(interpreter, item, p.get(2, Value())));
    if (out.size() > kMaxValueWeight) raise(Fault::limit, "join() made over {} MiB of text", kMaxValueWeight >> 20);
  }
  return Value(std::move(out));
}

Value batch(Interpreter&, Args& args) {
  const Params p("batch", args, {"value", "linecount", "fill_with"}, 2);
  const int64_t count = p.integer(1, 0);
  std::vector<Value> batches;
  std::vector<Value> current;
  for (const Value& item : to_vector(p.at(0))) {
    if (static_cast<int64_t>(current.size()) == count) batches.push_back(Value::list(std::exchange(current, {})));
    current.push_back(item);
  }
  if (!current.empty()) {
    const Value fill = p.get(2, Value());
    if (!fill.is_none()) {
      if (count > kMaxRange) raise(Fault::limit, "batch: more than {} items in a line", kMaxRange);
      while (static_cast<int64_t>(current.size()) < count) current.push_back(fill);
    }
    batches.push_back(Value::list(std::move(current)));
  }
  return generator_over(std::move(batches));
}

Value slices(Interpreter&, Args& args) {
  const Params p("slice", args, {"value", "slices", "fill_with"}, 2);
  const std::vector<Value> items = to_vector(p.at(0));
  const int64_t count = p.integer(1, 0);
  if (count == 0) raise(Fault::zero_division, "integer division or modulo by zero");
  if (count > kMaxRange) raise(Fault::limit, "slice: more than {} slices", kMaxRange);
  const Value fill = p.get(2, Value());
  std::vector<Value> out;
  const int64_t each = static_cast<int64_t>(items.size()) / std::max<int64_t>(count, 1);
  const int64_t longer = static_cast<int64_t>(items.size()) % std::max<int64_t>(count, 1);
  auto start = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const auto end = start + each + (i < longer ? 1 : 0);
    std::vector<Value> slice(start, end);
    if (!fill.is_none() && i >= longer) slice.push_back(fill);
    out.push_back(Value::list(std::move(slice)));
    start = end;
  }
  return generator_over(std::move(out));
}

Value groupby(Interpreter& interpreter, Args& args) {
  const Params p("groupby", args, {"value", "attribute", "default", "case_sensitive"}, 2);
  const bool fold = !p.truthy(3, false);
  const Value absent = p.get(2, Value());
  const Value* absent_or_null = absent.is_none() ? nullptr : &absent;
  const auto key_of = [&](const Value& item) {
    const Value v = follow_attribute(interpreter, item, p.at(1), absent_or_null);
    return fold ? ignore_case(interpreter, v) : v;
  };
  std::vector<Value> items = to_vector(p.at(0));
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  items = sorted_by(interpreter, std::move(items), std::move(keys), false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    const Value key = key_of(items[i]);
    const Value shown = follow_attribute(interpreter, items[i], p.at(1), absent_or_null);
    std::vector<Value> group;
    interpreter.spend_comparing(key);
    for (; i < items.size() && equal(key_of(items[i]), key); ++i) group.push_back(items[i]);
    groups.emplace_back(
        std::make_shared<const Seq>(Seq::Type::group, std::vector<Value>{shown, Value::list(std::move(group))}));
  }
  return Value::list(std::move(groups));
}

Value items(Interpreter&, Args& args) {
  const Params p("items", args, {"value"}, 1);
  const Value v = p.at(0);
  if (v.is_undefined()) return generator_over({});
  if (!v.is_dict()) {
    auto fail = [](Value&) -> bool { raise(Fault::type_error, "Can only get item pairs from a mapping."); };
    return make_generator(fail, {});
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : v.dict().entries()) pairs.push_back(Value::tuple({key, value}));
  return generator_over(std::move(pairs));
}

Value or_default(Interpreter&, Args& args) {
  const Params p("default", args, {"value", "default_value", "boolean"}, 1);
  const bool replace = p.at(0).is_undefined() || (p.truthy(2, false) && !p.at(0).truthy());
  return replace ? p.get(1, Value("")) : p.at(0);
}

Value attribute(Interpreter&, Args& args) {
  const Params p("attr", args, {"obj", "name"}, 2);
  require_defined(p.at(0));
  if (auto found = python_attribute(p.at(0), p.string(1))) return *found;
  return Value::undefined(fmt::format("{} has no attribute {}", quote(describe_type(p.at(0))), quote(p.string(1))));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"attr", attribute},    {"batch", batch},   {"count", length},    {"d", or_default},      {"default", or_default},
    {"dictsort", dictsort}, {"first", first},   {"groupby", groupby}, {"items", items},       {"join", join},
    {"last", last},         {"length", length}, {"list", to_list},    {"max", extreme<true>}, {"min", extreme<false>},
    {"reverse", reverse},   {"slice", slices},  {"sort", sort},       {"sum", sum},           {"unique", unique},
};

}  // namespace

Value ignore_case(Interpreter& interpreter, const Value& v) {
  if (!v.is_string()) return v;
  interpreter.spend_reading(v);
  return Value(to_lower(v.text()));
}

Value follow_attribute(Interpreter& interpreter, const Value& item, const Value& attribute, const Value* absent) {
  interpreter.spend(1);
  interpreter.spend_reading(attribute);
  const auto step = [absent](const Value& v, const Value& key) {
    Value next = get_item(v, key);
    return absent != nullptr && next.is_undefined() ? *absent : next;
  };
  if (attribute.is_none()) return item;
  if (!attribute.is_string()) return step(item, attribute);
  Value v = item;
  std::string_view rest = attribute.text();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && part.size() < 18 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    v = step(v, number ? Value(int64_t{std::stoll(std::string(part))}) : Value(part));
    if (dot == rest.size()) return v;
    rest.remove_prefix(dot + 1);
  }
}

Table<FilterEntry> sequence_filters() { return {std::begin(kSequenceFilters), std::end(kSequenceFilters)}; }

}  // namespace ingot::jinja
