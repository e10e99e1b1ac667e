#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"

namespace ingot::jinja {

// The variable `loop` inside a for loop.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // `length` is what len() of the iterable gives, if it has one. The scope and statement are for recursive loops.
  Loop(std::unique_ptr<Iter> items, std::optional<int64_t> length, int depth, const Stmt* recursive, ScopePtr scope);

  bool advance(Value& item);  // to the next iteration; false at the end

  std::string_view type_name() const override { return "LoopContext"; }
  std::string_view module() const override { return "jinja2.runtime"; }
  std::string repr(int level) const override;
  std::optional<Value> attribute(std::string_view name) override;
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, Args args) override;
  void forget() override;

  Value cycle(const Args& args) const;
  bool changed(const Args& args);

 private:
  bool peek();  // reads one item ahead
  int64_t count();

  std::unique_ptr<Iter> items_;
  std::vector<Value> ahead_;  // items already taken from items_, the next one last
  std::optional<int64_t> length_;
  int64_t index0_ = -1;
  int level_;
  Value previous_, current_;
  std::optional<Value> last_changed_;
  const Stmt* recursive_;
  ScopePtr scope_;
};

// A macro, or the caller() of a call block.
class Macro : public Object {
 public:
  Macro(const Stmt& definition, ScopePtr scope) : definition_(definition), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  std::string_view module() const override { return "jinja2.runtime"; }
  std::string repr(int level) const override;
  std::optional<Value> attribute(std::string_view name) override;
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, Args args) override;
  void forget() override { scope_.reset(); }

 private:
  const Stmt& definition_;
  ScopePtr scope_;
};

}  // namespace ingot::jinja
