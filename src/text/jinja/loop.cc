#include "text/jinja/loop.h"

#include <algorithm>

#include "text/jinja/text.h"

namespace ingot::jinja {

Loop::Loop(std::unique_ptr<Iter> items, std::optional<int64_t> length, int depth, const Stmt* recursive, ScopePtr scope)
    : items_(std::move(items)), length_(length), level_(depth), recursive_(recursive), scope_(std::move(scope)) {}

bool Loop::peek() {
  if (!ahead_.empty()) return true;
  Value v;
  if (!items_ || !items_->next(v)) return false;
  ahead_.push_back(std::move(v));
  return true;
}

bool Loop::advance(Value& item) {
  if (!peek()) return false;
  item = std::move(ahead_.back());
  ahead_.pop_back();
  ++index0_;
  previous_ = std::move(current_);
  current_ = item;
  return true;
}

int64_t Loop::count() {
  if (!length_) {
    std::reverse(ahead_.begin(), ahead_.end());
    uint64_t weight = 0;
    for (Value v; items_ && items_->next(v); ahead_.push_back(std::move(v))) {
      weight += v.weight();
      if (weight > kMaxValueWeight) raise(Fault::limit, "a loop runs over more than {} MiB", kMaxValueWeight >> 20);
    }
    std::reverse(ahead_.begin(), ahead_.end());
    length_ = index0_ + 1 + static_cast<int64_t>(ahead_.size());
  }
  return *length_;
}

std::string Loop::repr(int) const {
  return fmt::format("<LoopContext {}/{}>", index0_ + 1, length_.value_or(index0_ + 1));
}

std::optional<Value> Loop::attribute(std::string_view name) {
  static const Method kCycle{"cycle", [](Interpreter&, const Value& self, Args& args) {
                               return static_cast<Loop*>(self.object())->cycle(args);
                             }};
  static const Method kChanged{"changed", [](Interpreter& interpreter, const Value& self, Args& args) {
                                 for (const Value& v : args.positional) interpreter.spend_comparing(v);
                                 return Value(static_cast<Loop*>(self.object())->changed(args));
                               }};
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek());
  if (name == "length") return Value(count());
  if (name == "revindex") return Value(count() - index0_);
  if (name == "revindex0") return Value(count() - index0_ - 1);
  if (name == "depth") return Value(level_ + 1);
  if (name == "depth0") return Value(level_);
  if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : previous_;
  if (name == "nextitem") return peek() ? ahead_.back() : Value::undefined("there is no next item");
  const Value self{std::shared_ptr<Object>(shared_from_this())};
  if (name == "cycle") return Value(std::make_shared<BoundMethod>(self, &kCycle));
  if (name == "changed") return Value(std::make_shared<BoundMethod>(self, &kChanged));
  return std::nullopt;
}

Value Loop::cycle(const Args& args) const {
  if (args.positional.empty()) raise(Fault::type_error, "no items for cycling given");
  return args.positional[static_cast<size_t>(index0_) % args.positional.size()];
}

bool Loop::changed(const Args& args) {
  Value now = Value::tuple(args.positional);
  if (last_changed_ && equal(*last_changed_, now)) return false;
  last_changed_ = std::move(now);
  return true;
}

Value Loop::call(Interpreter& interpreter, Args args) {
  if (recursive_ == nullptr)
    raise(Fault::type_error, "The loop must have the 'recursive' marker to be called recursively.");
  const Params p("loop", args, {"iterable"}, 1);
  return Value(interpreter.run_loop_nested(*recursive_, scope_, p.at(0), level_ + 1));
}

void Loop::forget() {
  items_.reset();
  ahead_.clear();
  previous_ = current_ = Value();
  last_changed_.reset();
  scope_.reset();
}

std::string Macro::repr(int) const {
  return definition_.text.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", quote(definition_.text));
}

std::optional<Value> Macro::attribute(std::string_view name) {
  if (name == "name") return definition_.text.empty() ? Value() : Value(definition_.text);
  if (name == "catch_kwargs") return Value(definition_.uses_kwargs);
  if (name == "catch_varargs") return Value(definition_.uses_varargs);
  if (name == "caller") return Value(definition_.uses_caller);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const Param& param : definition_.params) names.emplace_back(param.name);
    return Value::tuple(std::move(names));
  }
  return std::nullopt;
}

Value Macro::call(Interpreter& interpreter, Args args) {
  return interpreter.call_macro(definition_, scope_, std::move(args));
}

}  // namespace ingot::jinja
