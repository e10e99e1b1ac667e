#include <algorithm>
#include <ctime>
#include <iterator>

#include "text/jinja/ops.h"
#include "text/jinja/run.h"
#include "text/jinja/text.h"

// Tests, and the functions that every template can call.
namespace ingot::jinja {
namespace {

const Value& subject(const Args& args) {
  if (args.positional.size() != 1 || !args.keywords.empty()) raise("this test takes no arguments");
  return args.positional[0];
}

template <bool (Value::*Is)() const>
bool of_kind(Run&, const Args& args) {
  return (subject(args).*Is)();
}

template <bool Wanted>
bool is_literal(Run&, const Args& args) {
  return subject(args).is_bool() && subject(args).as_bool() == Wanted;
}

bool defined(Run&, const Args& args) { return !subject(args).is_undefined(); }
bool iterable(Run&, const Args& args) { return Iter::can(subject(args)); }
bool callable(Run&, const Args& args) { return subject(args).object() && subject(args).object()->is_callable(); }

// What has a length and items by number or key.
bool sequence(Run&, const Args& args) {
  const Value& v = subject(args);
  const bool view = v.seq() != nullptr && !v.is_list() && !v.is_tuple() && v.seq()->type != Seq::Type::range;
  return length_of(v).has_value() && !view;
}

bool divides(const Value& v, const Value& by, int rest) { return equal(apply(BinaryOp::mod, v, by), Value(rest)); }
bool odd(Run&, const Args& args) { return divides(subject(args), Value(2), 1); }
bool even(Run&, const Args& args) { return divides(subject(args), Value(2), 0); }

bool divisible_by(Run&, const Args& args) {
  const Params p("divisibleby", args, {"value", "num"}, 2);
  return divides(p.at(0), p.at(1), 0);
}

bool same_as(Run&, const Args& args) {
  const Params p("sameas", args, {"value", "other"}, 2);
  return p.at(0).kind() == p.at(1).kind() && equal(p.at(0), p.at(1));
}

template <Comparison Op>
bool compares(Run& run, const Args& args) {
  const Params p("comparison", args, {"a", "b"}, 2);
  return compare(run, Op, p.at(0), p.at(1));
}

struct TestEntry {
  std::string_view name;
  Test function;
};

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
    {"even", even},
    {"false", is_literal<false>},
    {"float", of_kind<&Value::is_real>},
    {"ge", compares<Comparison::ge>},
    {"greaterthan", compares<Comparison::gt>},
    {"gt", compares<Comparison::gt>},
    {"in", compares<Comparison::in>},
    {"integer", of_kind<&Value::is_int>},
    {"iterable", iterable},
    {"le", compares<Comparison::le>},
    {"lessthan", compares<Comparison::lt>},
    {"lt", compares<Comparison::lt>},
    {"mapping", of_kind<&Value::is_dict>},
    {"ne", compares<Comparison::ne>},
    {"none", of_kind<&Value::is_none>},
    {"number", of_kind<&Value::is_number>},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", sequence},
    {"string", of_kind<&Value::is_string>},
    {"true", is_literal<true>},
    {"undefined", of_kind<&Value::is_undefined>},
};

Value range(Run&, Args& args) {
  const Params p("range", args, {"start", "stop", "step"}, 1);
  const bool only_stop = args.positional.size() == 1;
  const int64_t start = only_stop ? 0 : p.integer(0, 0);
  const int64_t stop = only_stop ? p.integer(0, 0) : p.integer(1, 0);
  const int64_t step = p.integer(2, 1);
  if (step == 0) raise("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == static_cast<size_t>(kMaxRange))
      raise("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value(std::make_shared<const Seq>(Seq::Type::range, std::move(items)));
}

// A mapping or pairs, then keywords.
Value dict(Run&, Args& args) {
  auto dict = std::make_shared<Dict>();
  if (args.positional.size() > 1) raise("dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    dict = std::make_shared<Dict>(args.positional[0].dict());
  } else if (!args.positional.empty()) {
    for (const Value& pair : to_vector(args.positional[0])) {
      const auto parts = to_vector(pair);
      if (parts.size() != 2) raise("dictionary update sequence element has length {}; 2 is required", parts.size());
      dict->set(parts[0], parts[1]);
    }
  }
  for (const auto& [key, value] : args.keywords) dict->set(Value(key), value);
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value name_space(Run& run, Args& args) {
  auto result = std::make_shared<Namespace>();
  const Value attributes = dict(run, args);
  for (const auto& [key, value] : attributes.dict().entries()) {
    if (!key.is_string()) raise_unsupported("namespace() with names that are not strings is not supported");
    result->set(key.text(), value);
  }
  run.keep(result);
  return Value(std::shared_ptr<Object>(std::move(result)));
}

Value raise_exception(Run&, Args& args) {
  throw Raise(ErrorKind::bad_call, str(Params("raise_exception", args, {"message"}, 1).at(0)));
}

Value strftime_now(Run& run, Args& args) {
  const Params p("strftime_now", args, {"format"}, 1);
  const std::string& format = p.string(0);
  const std::tm now = run.now();
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    std::string directive = "%";
    if (i + 2 < format.size() && std::string_view("-_0^EO").find(format[i + 1]) != std::string_view::npos)
      directive += format[++i];
    directive += format[++i];
    char buffer[256];
    // A date without time zone and without microseconds.
    if (directive == "%f") {
      out += "000000";
    } else if (directive != "%z" && directive != "%Z") {
      out.append(buffer, std::strftime(buffer, sizeof buffer, directive.c_str(), &now));
    }
    if (out.size() > kMaxValueWeight) raise_limit("strftime_now() made too long a text");
  }
  return Value(std::move(out));
}

struct GlobalEntry {
  std::string_view name;
  Value (*function)(Run& run, Args& args);
};

constexpr GlobalEntry kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", name_space},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const TestEntry& t : kTests)
    if (t.name == name) return t.function;
  return nullptr;
}

std::optional<Value> find_global(std::string_view name) {
  for (const GlobalEntry& g : kGlobals)
    if (g.name == name) return make_function(g.function);
  if (name == "cycler" || name == "joiner" || name == "lipsum")
    return make_function(
        [name = std::string(name)](Run&, Args&) -> Value { raise_unsupported("{}() is not supported", name); });
  return std::nullopt;
}

}  // namespace ingot::jinja
