#pragma once

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/cancel.h"
#include "text/jinja/args.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

// The variables of a template, loop iteration, macro call or block; what is not here is in the parent.
class Scope {
 public:
  using Variables = std::vector<std::pair<std::string_view, Value>>;  // names point into the template or its caller

  explicit Scope(std::shared_ptr<Scope> parent, Variables variables = {});

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  void clear();

 private:
  const Value* find_here(std::string_view name) const;

  std::shared_ptr<Scope> parent_;
  Variables variables_;
  std::unordered_map<std::string_view, size_t> places_;  // in variables_, once there are more than a few
};
using ScopePtr = std::shared_ptr<Scope>;

// One run of a template: what it has written and what it may still use.
class Run {
 public:
  Run(const Limits& limits, std::optional<std::tm> now, const CancelFlag* cancelled);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // One evaluation inside another: costs a step, bounds the use of the stack.
  class Level {
   public:
    Level(Run& run, uint32_t pos);
    ~Level() { --run_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Run& run_;
  };

  void spend(uint64_t steps);
  // Steps for work that looks at each character or item of a value, about as long as that takes; for copying it; and
  // for comparing or hashing it with all it contains.
  void spend_reading(const Value& v) { spend(v.is_string() ? v.text().size() >> 5 : item_count(v) >> 2); }
  void spend_copying(const Value& v) { spend(v.is_string() ? v.text().size() >> 7 : item_count(v) >> 2); }
  void spend_comparing(const Value& v) { spend(v.weight() >> 8); }

  std::string text_of(const Value& v);  // str(v), paid for
  void write(std::string_view text);
  // What `body` writes, kept apart from the output.
  template <typename Body>
  std::string capture(Body body) {
    std::string text;
    std::string* outer = std::exchange(output_, &text);
    body();  // an exception ends the run, so the output need not be restored then
    output_ = outer;
    return text;
  }
  std::string take_output() { return std::move(text_); }

  Value call(const Value& function, Args args);
  Value call_filter(const std::string& name, const Args& args);
  bool call_test(const std::string& name, const Args& args);
  // Objects that can be part of a cycle; they are taken apart when the run ends.
  void keep(std::shared_ptr<Object> object);
  std::tm now() const;

  uint32_t pos = 0;  // in the source, of what is being evaluated

 private:
  static size_t item_count(const Value& v) {
    return v.seq() != nullptr ? v.items().size() : v.is_dict() ? v.dict().size() : 0;
  }

  const Limits& limits_;
  std::optional<std::tm> now_;
  const CancelFlag* cancelled_;
  const std::chrono::steady_clock::time_point end_;
  int64_t steps_ = 0;
  int64_t looked_ = 0;  // steps when the clock was last looked at
  int64_t memory_at_start_;
  int depth_ = 0;
  std::string text_;
  std::string* output_ = &text_;
  std::vector<std::shared_ptr<Object>> kept_;
};

// A function of the environment, a method bound to its value, or a macro.
class Function : public Object {
 public:
  using Body = std::function<Value(Run& run, Args& args)>;
  explicit Function(Body body) : body_(std::move(body)) {}

  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, Args args) override;
  void forget() override { body_ = nullptr; }

 private:
  Body body_;
};

inline Value make_function(Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(body))));
}

// namespace(): the only thing a template can change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "TemplateNamespace"; }
  std::optional<Value> attribute(std::string_view name) override;
  void forget() override { attributes_.clear(); }
  void set(std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// The variable `loop` inside a for loop.
class Loop : public Object {
 public:
  using Next = std::function<bool(Value&)>;
  // `length` is what len() of the iterable gives, if it has one.
  Loop(Next next, std::optional<int64_t> length) : next_(std::move(next)), length_(length) {}

  bool advance(Value& item);  // to the next iteration; false at the end

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(std::string_view name) override;
  void forget() override;

 private:
  bool peek();  // reads one item ahead
  int64_t count();

  Next next_;
  std::vector<Value> ahead_;  // items already read, the next one last
  std::optional<int64_t> length_;
  int64_t index0_ = -1;
  Value previous_, current_;
};

// The filters, tests and functions that templates can use.
using Filter = Value (*)(Run& run, const Args& args);  // args.positional[0] is what is filtered
using Test = bool (*)(Run& run, const Args& args);     // args.positional[0] is what is tested

Filter find_filter(std::string_view name);  // null when there is none
Test find_test(std::string_view name);
std::optional<Value> find_global(std::string_view name);

}  // namespace ingot::jinja
