#include <algorithm>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

const Value& subject(Args& args) {
  if (args.positional.size() != 1 || !args.keywords.empty()) raise(Fault::type_error, "this test takes no arguments");
  return args.positional[0];
}

template <bool (Value::*Is)() const>
bool of_kind(Interpreter&, Args& args) {
  return (subject(args).*Is)();
}

bool defined(Interpreter&, Args& args) { return !subject(args).is_undefined(); }
bool is_true(Interpreter&, Args& args) { return subject(args).is_bool() && subject(args).as_bool(); }
bool is_false(Interpreter&, Args& args) { return subject(args).is_bool() && !subject(args).as_bool(); }
bool iterable(Interpreter&, Args& args) { return try_iterate(subject(args)) != nullptr; }

bool sequence(Interpreter&, Args& args) {
  const Value& v = subject(args);
  if (const Object* o = v.object()) return o->has_items() && o->length();
  return length_of(v).has_value();
}

bool callable(Interpreter&, Args& args) {
  const Value& v = subject(args);
  // Python's callable() says so of an Undefined, too, as it has a method that raises.
  return v.is_undefined() || (v.object() != nullptr && v.object()->is_callable());
}

bool cased(Args& args, bool (*is)(char32_t), bool (*is_not)(char32_t)) {
  bool any = false;
  for (char32_t c : decode(str(subject(args)))) {
    if (is_not(c) || is_title(c)) return false;
    any = any || is(c);
  }
  return any;
}

bool lower(Interpreter&, Args& args) { return cased(args, is_lower, is_upper); }
bool upper(Interpreter&, Args& args) { return cased(args, is_upper, is_lower); }

bool divides(const Value& v, const Value& by, int rest) { return equal(apply(BinaryOp::mod, v, by), Value(rest)); }
bool odd(Interpreter&, Args& args) { return divides(subject(args), Value(2), 1); }
bool even(Interpreter&, Args& args) { return divides(subject(args), Value(2), 0); }

bool divisible_by(Interpreter&, Args& args) {
  const Params p("divisibleby", args, {"value", "num"}, 2);
  return divides(p.at(0), p.at(1), 0);
}

bool same_as(Interpreter&, Args& args) {
  const Params p("sameas", args, {"value", "other"}, 2);
  return p.at(0).same(p.at(1));
}

bool contained(Interpreter& interpreter, Args& args) {
  const Params p("in", args, {"value", "seq"}, 2);
  interpreter.spend_comparing(p.at(1));
  return contains(p.at(1), p.at(0));
}

bool filter_exists(Interpreter&, Args& args) {
  return subject(args).is_string() && find_filter(subject(args).text()) != nullptr;
}

bool test_exists(Interpreter&, Args& args) {
  return subject(args).is_string() && find_test(subject(args).text()) != nullptr;
}

template <Comparison Op>
bool compares(Interpreter& interpreter, Args& args) {
  const Params p("comparison", args, {"a", "b"}, 2);
  const Value& a = p.at(0);
  const Value& b = p.at(1);
  interpreter.spend_comparing(a);
  interpreter.spend_comparing(b);
  switch (Op) {
    case Comparison::eq: return equal(a, b);
    case Comparison::ne: return !equal(a, b);
    case Comparison::lt: return compare(a, b, "<") < 0;
    case Comparison::le: return compare(a, b, "<=") <= 0;
    case Comparison::gt: return compare(a, b, ">") > 0;
    default: return compare(a, b, ">=") >= 0;
  }
}

constexpr TestEntry kTests[] = {
    {"!=", compares<Comparison::ne>},
    {"<", compares<Comparison::lt>},
    {"<=", compares<Comparison::le>},
    {"==", compares<Comparison::eq>},
    {">", compares<Comparison::gt>},
    {">=", compares<Comparison::ge>},
    {"boolean", of_kind<&Value::is_bool>},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisible_by},
    {"eq", compares<Comparison::eq>},
    {"equalto", compares<Comparison::eq>},
    {"escaped", of_kind<&Value::is_markup>},
    {"even", even},
    {"false", is_false},
    {"filter", filter_exists},
    {"float", of_kind<&Value::is_real>},
    {"ge", compares<Comparison::ge>},
    {"greaterthan", compares<Comparison::gt>},
    {"gt", compares<Comparison::gt>},
    {"in", contained},
    {"integer", of_kind<&Value::is_int>},
    {"iterable", iterable},
    {"le", compares<Comparison::le>},
    {"lessthan", compares<Comparison::lt>},
    {"lower", lower},
    {"lt", compares<Comparison::lt>},
    {"mapping", of_kind<&Value::is_dict>},
    {"ne", compares<Comparison::ne>},
    {"none", of_kind<&Value::is_none>},
    {"number", of_kind<&Value::is_number>},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", sequence},
    {"string", of_kind<&Value::is_string>},
    {"test", test_exists},
    {"true", is_true},
    {"undefined", of_kind<&Value::is_undefined>},
    {"upper", upper},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& t) { return t.name == name; });
  return it == std::end(kTests) ? nullptr : it;
}

const FilterEntry* find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
    const auto* it = std::find_if(table.begin, table.end, [&](const FilterEntry& f) { return f.name == name; });
    if (it != table.end) return it;
  }
  return nullptr;
}

bool is_unsupported_filter(std::string_view name) {
  static constexpr std::string_view kNames[] = {"pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace ingot::jinja
