#include <algorithm>
#include <iterator>
#include <list>

#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

// Filters that go over the items of a value.
namespace ingot::jinja {
namespace {

Value generator(std::vector<Value> items) {
  return Value(std::make_shared<const Seq>(Seq::Type::generator, std::move(items)));
}

// Follows "a.b.0" from an item, as the `attribute` argument of filters does; no attribute gives the item itself.
// `absent` replaces what is undefined.
Value follow_attribute(Run& run, const Value& item, const Value& attribute, const Value* absent = nullptr) {
  run.spend(1);
  run.spend_reading(attribute);
  const auto step = [absent](const Value& v, const Value& key) {
    Value next = get_item(v, key);
    return absent != nullptr && next.is_undefined() ? *absent : next;
  };
  if (attribute.is_none()) return item;
  if (!attribute.is_string()) return step(item, attribute);
  Value v = item;
  const std::string dot = ".";
  for (const std::string& part : split_text(attribute.text(), &dot, -1, false)) {
    const bool number = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    v = step(v, number ? Value(int64_t{std::stoll(part)}) : Value(part));
  }
  return v;
}

// What items are ordered by or told apart by: an attribute of theirs, strings without regard to case unless asked for.
Value key_of(Run& run, const Value& item, const Value& attribute, bool case_sensitive) {
  const Value v = follow_attribute(run, item, attribute);
  if (case_sensitive || !v.is_string()) return v;
  run.spend_reading(v);
  return Value(to_lower(v.text()));
}

Value first(Run&, const Args& args) {
  Value v;
  if (Iter(Params("first", args, {"seq"}, 1).at(0)).next(v)) return v;
  return Value::undefined("No first item, sequence was empty.");
}

bool is_generator(const Value& v) { return v.seq() != nullptr && v.seq()->type == Seq::Type::generator; }

std::vector<Value> reversed_items(const Value& v) {
  std::vector<Value> items = to_vector(v);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Run&, const Args& args) {
  const Params p("last", args, {"seq"}, 1);
  if (is_generator(p.at(0))) raise("'generator' object is not reversible");
  const auto items = reversed_items(p.at(0));
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.front();
}

Value length(Run&, const Args& args) {
  const Params p("length", args, {"obj"}, 1);
  const auto n = length_of(p.at(0));
  if (!n) raise("object of type '{}' has no len()", type_name(p.at(0)));
  return *n;
}

Value to_list(Run&, const Args& args) { return Value::list(to_vector(Params("list", args, {"value"}, 1).at(0))); }

Value reverse(Run&, const Args& args) {
  const Params p("reverse", args, {"value"}, 1);
  if (is_generator(p.at(0))) return Value::list(reversed_items(p.at(0)));
  if (!p.at(0).is_string()) return generator(reversed_items(p.at(0)));
  auto chars = decode(p.at(0).text());
  std::reverse(chars.begin(), chars.end());
  return encode(chars);
}

// Sorts `items` by their keys; equal ones keep their order.
Value sorted_by(Run& run, const std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::list<size_t> order;  // a list's sort is stable, and safe even when the order makes no sense, as with NaN
  for (size_t i = 0; i < items.size(); ++i) order.push_back(i);
  order.sort([&](size_t a, size_t b) {
    run.spend(1 + (std::min(keys[a].weight(), keys[b].weight()) >> 8));
    return reverse ? compare(keys[b], keys[a], "<") < 0 : compare(keys[a], keys[b], "<") < 0;
  });
  std::vector<Value> out;
  for (size_t i : order) out.push_back(items[i]);
  return Value::list(std::move(out));
}

Value sort(Run& run, const Args& args) {
  const Params p("sort", args, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  const Value attribute = p.get(3, Value());
  if (attribute.is_string() && attribute.text().find(',') != std::string::npos)
    raise_unsupported("sort() by several attributes is not supported");
  const std::vector<Value> items = to_vector(p.at(0));
  std::vector<Value> keys;  // lists, as in jinja2: then what is not defined is equal to what is not either
  for (const Value& item : items) keys.push_back(Value::list({key_of(run, item, attribute, p.truthy(2))}));
  return sorted_by(run, items, keys, p.truthy(1));
}

Value dictsort(Run& run, const Args& args) {
  const Params p("dictsort", args, {"value", "case_sensitive", "by", "reverse"}, 1);
  require_defined(p.at(0));
  const std::string by = str(p.get(2, Value("key")));
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  if (!p.at(0).is_dict()) raise("'{}' object has no attribute 'items'", type_name(p.at(0)));
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : p.at(0).dict().entries()) {
    keys.push_back(key_of(run, by == "key" ? key : value, Value(), p.truthy(1)));
    items.push_back(Value::tuple({key, value}));
  }
  return sorted_by(run, items, keys, p.truthy(3));
}

Value unique(Run& run, const Args& args) {
  const Params p("unique", args, {"value", "case_sensitive", "attribute"}, 1);
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : to_vector(p.at(0))) {
    const Value key = key_of(run, item, p.get(2, Value()), p.truthy(1));
    run.spend_comparing(key);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value());
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <bool Greatest>
Value extreme(Run& run, const Args& args) {
  const Params p(Greatest ? "max" : "min", args, {"value", "case_sensitive", "attribute"}, 1);
  std::optional<Value> best;
  Value best_key;
  for (const Value& item : to_vector(p.at(0))) {
    Value key = key_of(run, item, p.get(2, Value()), p.truthy(1));
    run.spend_comparing(key);
    if (best && !(Greatest ? compare(key, best_key, ">") > 0 : compare(key, best_key, "<") < 0)) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Run& run, const Args& args) {
  const Params p("sum", args, {"iterable", "attribute", "start"}, 1);
  Value total = p.get(2, Value(0));
  if (total.is_string()) raise("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : to_vector(p.at(0))) {
    run.spend_copying(total);
    total = apply(BinaryOp::add, total, follow_attribute(run, item, p.get(1, Value())));
  }
  return total;
}

Value absolute(Run&, const Args& args) {
  const Params p("abs", args, {"x"}, 1);
  if (!p.at(0).is_number()) raise("bad operand type for abs(): '{}'", type_name(p.at(0)));
  return compare(p.at(0), Value(0), "<") < 0 ? negate(p.at(0)) : negate(negate(p.at(0)));
}

Value join(Run& run, const Args& args) {
  const Params p("join", args, {"value", "d", "attribute"}, 1);
  const std::string separator = run.text_of(p.get(1, Value("")));
  std::string out;
  bool first = true;
  Iter it(p.at(0));
  for (Value item; it.next(item); first = false) {
    if (!first) out += separator;
    out += run.text_of(follow_attribute(run, item, p.get(2, Value())));
    if (out.size() > kMaxValueWeight) raise_limit("join() made over {} MiB of text", kMaxValueWeight >> 20);
  }
  return Value(std::move(out));
}

Value items(Run&, const Args& args) {
  const Params p("items", args, {"value"}, 1);
  const Value& v = p.at(0);
  if (!v.is_undefined() && !v.is_dict()) raise("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  if (v.is_dict())
    for (const auto& [key, value] : v.dict().entries()) pairs.push_back(Value::tuple({key, value}));
  return generator(std::move(pairs));
}

Value or_default(Run&, const Args& args) {
  const Params p("default", args, {"value", "default_value", "boolean"}, 1);
  const bool replace = p.at(0).is_undefined() || (p.truthy(2) && !p.at(0).truthy());
  return replace ? p.get(1, Value("")) : p.at(0);
}

// The arguments for a filter or test that was given by name, from `from` on, with `subject` as the first.
Args passed_on(const Args& args, size_t from, const Value& subject) {
  Args out{{subject}, args.keywords};
  for (size_t i = from; i < args.positional.size(); ++i) out.positional.push_back(args.positional[i]);
  return out;
}

Value map(Run& run, const Args& args) {
  std::vector<Value> out;
  if (!args.positional[0].truthy()) return generator({});
  const bool by_attribute = args.positional.size() == 1 && !args.keywords.empty();
  const Params p("map", by_attribute ? args : Args{{args.positional[0]}, {}}, {"value", "attribute", "default"}, 1);
  if (!by_attribute && args.positional.size() < 2) raise("map requires a filter argument");
  const Value absent = p.get(2, Value());
  for (const Value& item : to_vector(args.positional[0])) {
    out.push_back(by_attribute ? follow_attribute(run, item, p.get(1, Value()), absent.is_none() ? nullptr : &absent)
                               : run.call_filter(str(args.positional[1]), passed_on(args, 2, item)));
  }
  return generator(std::move(out));
}

template <bool Wanted, bool ByAttribute>
Value select(Run& run, const Args& args) {
  constexpr size_t kTestAt = ByAttribute ? 2 : 1;
  std::vector<Value> out;
  if (!args.positional[0].truthy()) return generator({});
  if (ByAttribute && args.positional.size() < 2) raise("Missing parameter for attribute name");
  for (const Value& item : to_vector(args.positional[0])) {
    run.spend(1);
    const Value subject = ByAttribute ? follow_attribute(run, item, args.positional[1]) : item;
    const bool passes = args.positional.size() <= kTestAt
                            ? subject.truthy()
                            : run.call_test(str(args.positional[kTestAt]), passed_on(args, kTestAt + 1, subject));
    if (passes == Wanted) out.push_back(item);
  }
  return generator(std::move(out));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"abs", absolute},
    {"count", length},
    {"d", or_default},
    {"default", or_default},
    {"dictsort", dictsort},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

FilterTable sequence_filters() { return {std::begin(kSequenceFilters), std::end(kSequenceFilters)}; }

Filter find_filter(std::string_view name) {
  for (const FilterTable& table : {text_filters(), sequence_filters()}) {
    const auto* it = std::find_if(table.begin, table.end, [&](const FilterEntry& f) { return f.name == name; });
    if (it != table.end) return it->function;
  }
  return nullptr;
}

}  // namespace ingot::jinja
