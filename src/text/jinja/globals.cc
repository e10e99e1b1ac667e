#include <ctime>

#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/registry.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

Value range(Interpreter&, Args args) {
  const Params p("range", args, {"start", "stop", "step"}, 1);
  for (const Value& v : args.positional) require_defined(v);
  if (args.positional.size() == 1) return Value(std::make_shared<Range>(0, p.integer(0, 0), 1));
  return Value(std::make_shared<Range>(p.integer(0, 0), p.integer(1, 0), p.integer(2, 1)));
}

// What dict() makes of its arguments: a mapping or pairs, then keywords.
std::shared_ptr<const Dict> make_dict(Args& args) {
  auto dict = std::make_shared<Dict>();
  if (args.positional.size() > 1)
    raise(Fault::type_error, "dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    dict = std::make_shared<Dict>(args.positional[0].dict());
  } else if (!args.positional.empty()) {
    const auto items = iterate(args.positional[0]);
    for (Value pair; items->next(pair);) {
      const auto parts = to_vector(pair);
      if (parts.size() != 2)
        raise(Fault::value_error, "dictionary update sequence element has length {}; 2 is required", parts.size());
      dict->set(parts[0], parts[1]);
    }
  }
  for (const auto& [key, value] : args.keywords) dict->set(Value(key), value);
  return dict;
}

Value dict(Interpreter&, Args args) { return Value(make_dict(args)); }

Value name_space(Interpreter& interpreter, Args args) {
  auto result = std::make_shared<Namespace>();
  const auto attributes = make_dict(args);
  for (const auto& [key, value] : attributes->entries()) {
    if (!key.is_string()) raise(Fault::unsupported, "namespace() with names that are not strings is not supported");
    result->set(key.text(), value);
  }
  interpreter.keep(result);
  interpreter.spend(16);  // it stays until the end
  return Value(std::move(result));
}

Value cycler(Interpreter&, Args args) {
  if (args.positional.empty()) raise(Fault::runtime_error, "at least one item has to be provided");
  return Value(std::make_shared<Cycler>(Value::tuple(std::move(args.positional))));
}

Value joiner(Interpreter&, Args args) {
  return Value(std::make_shared<Joiner>(Params("joiner", args, {"sep"}, 0).get(0, Value(", "))));
}

Value raise_exception(Interpreter&, Args args) {
  const Params p("raise_exception", args, {"message"}, 1);
  throw Raise(Fault::user_exception, str(p.at(0)));
}

// A directive that the C library knows, of a date without time zone.
std::string directive_text(const std::tm& now, char flag, char letter) {
  if (letter == 'z' || letter == 'Z') return "";
  if (letter == 'f') return "000000";
  const char format[] = {'%', flag != '\0' ? flag : letter, flag != '\0' ? letter : '\0', '\0'};
  char buffer[256];
  const size_t n = std::strftime(buffer, sizeof buffer, format, &now);
  return std::string(buffer, n);
}

Value strftime_now(Interpreter& interpreter, Args args) {
  const Params p("strftime_now", args, {"format"}, 1);
  const std::string& format = p.string(0);
  const std::tm now = interpreter.now();
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool flagged =
        i + 2 < format.size() && (format[i + 1] == '-' || format[i + 1] == '_' || format[i + 1] == '0' ||
                                  format[i + 1] == '^' || format[i + 1] == 'E' || format[i + 1] == 'O');
    const char flag = flagged ? format[++i] : '\0';
    out += directive_text(now, flag, format[++i]);
    if (out.size() > kMaxValueWeight) raise(Fault::limit, "strftime_now() made too long a text");
  }
  return Value(std::move(out));
}

Value lipsum(Interpreter&, Args) { raise(Fault::unsupported, "lipsum() is not supported"); }

struct GlobalEntry {
  std::string_view name;
  Function function;
};

constexpr GlobalEntry kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", name_space},
    {"cycler", cycler},
    {"joiner", joiner},
    {"lipsum", lipsum},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  for (const GlobalEntry& g : kGlobals)
    if (g.name == name) return Value(std::make_shared<Builtin>(g.name, g.function));
  return std::nullopt;
}

}  // namespace ingot::jinja
