#include "text/jinja/filters.h"
#include "text/jinja/text.h"

// map, select, reject, selectattr and rejectattr: they give generators, so that nothing happens until someone asks.
namespace ingot::jinja {
namespace {

Value rest_of(const Args& args, size_t from) {
  if (args.positional.size() <= from) return Value::tuple({});
  return Value::tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(from), args.positional.end()});
}

using Apply = std::function<bool(const Value& item, Value& out)>;  // false: leave the item out

// Goes over `value` when it is truthy; `make` is called when the first item is asked for.
Value lazily(Interpreter& interpreter, const Value& value, const Value& inputs, std::function<Apply()> make) {
  auto next = [&interpreter, value, make = std::move(make), apply = Apply(),
               items = std::shared_ptr<Iter>()](Value& out) mutable {
    if (!items) {
      if (!value.truthy()) return false;
      apply = make();
      items = iterate(value);
    }
    for (Value item; items->next(item);) {
      interpreter.spend(1);
      if (apply(item, out)) return true;
    }
    return false;
  };
  return make_generator(std::move(next), {value, inputs});
}

Value map(Interpreter& interpreter, Args& args) {
  const Value rest = rest_of(args, 1);
  auto make = [&interpreter, rest, keywords = args.keywords]() -> Apply {
    const bool by_attribute =
        !keywords.empty() && rest.items().empty() &&
        std::any_of(keywords.begin(), keywords.end(), [](auto& k) { return k.first == "attribute"; });
    if (by_attribute) {
      Value attribute;
      Value absent;
      for (const auto& [name, value] : keywords) {
        if (name != "attribute" && name != "default")
          raise(Fault::runtime_error, "Unexpected keyword argument {}", quote(name));
        (name == "attribute" ? attribute : absent) = value;
      }
      return [&interpreter, attribute, absent](const Value& item, Value& out) {
        out = follow_attribute(interpreter, item, attribute, absent.is_none() ? nullptr : &absent);
        return true;
      };
    }
    if (rest.items().empty()) raise(Fault::runtime_error, "map requires a filter argument");
    const std::string name = str(rest.items()[0]);
    return [&interpreter, rest, keywords, name](const Value& item, Value& out) {
      Args call;
      call.positional.push_back(item);
      call.positional.insert(call.positional.end(), rest.items().begin() + 1, rest.items().end());
      call.keywords = keywords;
      out = interpreter.call_filter(name, call);
      return true;
    };
  };
  std::vector<Value> inputs{rest};
  for (const auto& [name, value] : args.keywords) inputs.push_back(value);
  return lazily(interpreter, args.positional[0], Value::tuple(std::move(inputs)), std::move(make));
}

template <bool Wanted, bool ByAttribute>
Value select(Interpreter& interpreter, Args& args) {
  const Value rest = rest_of(args, 1);
  auto make = [&interpreter, rest, keywords = args.keywords]() -> Apply {
    const auto& given = rest.items();
    if (ByAttribute && given.empty()) raise(Fault::runtime_error, "Missing parameter for attribute name");
    constexpr size_t kTestAt = ByAttribute ? 1 : 0;
    return [&interpreter, rest, keywords](const Value& item, Value& out) {
      const auto& given = rest.items();
      const Value subject = ByAttribute ? follow_attribute(interpreter, item, given[0]) : item;
      bool passes = false;
      if (given.size() <= kTestAt) {
        passes = subject.truthy();
      } else {
        Args call;
        call.positional.push_back(subject);
        call.positional.insert(call.positional.end(), given.begin() + static_cast<std::ptrdiff_t>(kTestAt) + 1,
                               given.end());
        call.keywords = keywords;
        passes = interpreter.call_test(str(given[kTestAt]), call);
      }
      out = item;
      return passes == Wanted;
    };
  };
  std::vector<Value> inputs{rest};
  for (const auto& [name, value] : args.keywords) inputs.push_back(value);
  return lazily(interpreter, args.positional[0], Value::tuple(std::move(inputs)), std::move(make));
}

constexpr FilterEntry kSelectionFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

}  // namespace

Table<FilterEntry> selection_filters() { return {std::begin(kSelectionFilters), std::end(kSelectionFilters)}; }

}  // namespace ingot::jinja
