#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

// The variables of a template, loop iteration, macro call or block; what is not here is in the parent.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // names point into the template

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

// One run of a template.
class Interpreter {
 public:
  Interpreter(const std::string& source, const Limits& limits, std::optional<std::tm> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws ingot::Error.
  std::string render(const Block& body, const std::vector<std::string>& hidden,
                     std::vector<std::pair<std::string_view, Value>> variables);

  // For filters, tests and functions.
  void spend(uint64_t steps);
  // Steps for work that looks at each character or item of a value, about as long as that takes; for copying it; and
  // for comparing or hashing it with all it contains.
  void spend_reading(const Value& v) { spend(v.is_string() ? v.text().size() >> 5 : item_count(v) >> 2); }
  void spend_copying(const Value& v) { spend(v.is_string() ? v.text().size() >> 7 : item_count(v) >> 2); }
  void spend_comparing(const Value& v) { spend(v.weight() >> 8); }
  std::string text_of(const Value& v);  // str(v), paid for
  Value call(const Value& function, Args args);
  Value call_filter(const std::string& name, Args& args);
  bool call_test(const std::string& name, Args& args);
  // Objects that can be part of a cycle; they are taken apart when the render ends.
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }
  std::tm now() const;

  Value call_macro(const Stmt& macro, const ScopePtr& scope, Args args);
  std::string run_loop_nested(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int depth);

 private:
  static size_t item_count(const Value& v) {
    return v.seq() != nullptr ? v.items().size() : v.is_dict() ? v.dict().size() : 0;
  }

  enum class Flow { normal, break_loop, continue_loop };
  class FilteredIter;

  // Bounds the use of the stack.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter_.depth_ > interpreter_.limits_.max_recursion) {
        --interpreter_.depth_;
        raise(Fault::limit, "the template recurses deeper than {} levels", interpreter_.limits_.max_recursion);
      }
    }
    ~Depth() { --interpreter_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // statements: interpreter.cc
  Flow execute(const Block& body, const ScopePtr& scope);
  Flow execute(const Stmt& stmt, const ScopePtr& scope);
  Flow execute_branch(const Stmt& stmt, const ScopePtr& scope);
  Flow execute_loop(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int depth);
  Flow execute_assign_block(const Stmt& stmt, const ScopePtr& scope);
  Flow execute_filter_block(const Stmt& stmt, const ScopePtr& scope);
  void execute_call_block(const Stmt& stmt, const ScopePtr& scope);
  Flow execute_with(const Stmt& stmt, const ScopePtr& scope);
  void check_namespaces(const Target& target, const ScopePtr& scope);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  void write(std::string_view text);
  // A new scope in which the names of `hidden` are undefined.
  ScopePtr inner(const ScopePtr& parent, const std::vector<std::string>& hidden) const;
  // Runs the body with its output kept apart.
  Flow capture(const Block& body, const ScopePtr& scope, std::string& output);
  Value lookup(const std::string& name, const ScopePtr& scope) const;

  // expressions: evaluate.cc
  Value evaluate(const Expr& e, const ScopePtr& scope);
  Value evaluate_items(const Expr& e, const ScopePtr& scope);
  Value evaluate_dict(const Expr& e, const ScopePtr& scope);
  Value evaluate_slice(const Expr& e, const ScopePtr& scope);
  Value evaluate_call(const Expr& e, const ScopePtr& scope, const Value* caller);
  Value evaluate_filter(const Expr& e, const ScopePtr& scope, const Value* input);
  Value run_filter(const FilterEntry& filter, Args& args);
  Value evaluate_test(const Expr& e, const ScopePtr& scope);
  Value evaluate_binary(const Expr& e, const ScopePtr& scope);
  Value evaluate_concat(const Expr& e, const ScopePtr& scope);
  Value evaluate_compare(const Expr& e, const ScopePtr& scope);
  Value evaluate_conditional(const Expr& e, const ScopePtr& scope);
  bool compare_pair(Comparison comparison, const Value& a, const Value& b);
  void evaluate_args(const CallArgs& call_args, const ScopePtr& scope, Args& args);

  const std::string& source_;
  const Limits& limits_;
  std::optional<std::tm> now_;
  int64_t steps_ = 0;
  int64_t memory_at_start_;
  int depth_ = 0;
  uint32_t pos_ = 0;  // in the source, of what is being evaluated
  std::string* output_ = nullptr;
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace ingot::jinja
