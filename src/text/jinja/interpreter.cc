#include "text/jinja/interpreter.h"

#include <algorithm>

#include "core/error.h"
#include "text/jinja/lexer.h"
#include "text/jinja/loop.h"
#include "text/jinja/objects.h"
#include "text/jinja/registry.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

ErrorKind kind_of(Fault fault) {
  switch (fault) {
    case Fault::unsupported: return ErrorKind::declined;
    case Fault::limit: return ErrorKind::bad_file;
    default: return ErrorKind::bad_call;
  }
}

// The value a target was assigned, as Python would read it back.
Value read_target(const Target& target, const Scope& scope) {
  if (!target.is_tuple) return *scope.find(target.name);
  std::vector<Value> parts;
  for (const Target& part : target.parts) parts.push_back(read_target(part, scope));
  return Value::tuple(std::move(parts));
}

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* s = this; s != nullptr; s = s->parent.get()) {
    for (const auto& [key, value] : s->variables)
      if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

// The items of a `for ... if`.
class Interpreter::FilteredIter : public Iter {
 public:
  FilteredIter(Interpreter& interpreter, const Stmt& stmt, ScopePtr scope, std::unique_ptr<Iter> items)
      : interpreter_(interpreter), stmt_(stmt), scope_(std::move(scope)), items_(std::move(items)) {}

  bool next(Value& out) override {
    for (Value item; items_->next(item);) {
      const ScopePtr scope = interpreter_.inner(scope_, {});
      interpreter_.assign(stmt_.target, item, scope);
      if (!interpreter_.evaluate(*stmt_.test, scope).truthy()) continue;
      out = read_target(stmt_.target, *scope);
      return true;
    }
    return false;
  }

 private:
  Interpreter& interpreter_;
  const Stmt& stmt_;
  ScopePtr scope_;
  std::unique_ptr<Iter> items_;
};

Interpreter::Interpreter(const std::string& source, const Limits& limits, std::optional<std::tm> now)
    : source_(source), limits_(limits), now_(now), memory_at_start_(Footprint::live()) {}

Interpreter::~Interpreter() {
  for (const auto& object : kept_) object->forget();
}

std::string Interpreter::render(const Block& body, const std::vector<std::string>& hidden,
                                std::vector<std::pair<std::string_view, Value>> variables) {
  std::string text;
  const auto scope = std::make_shared<Scope>();
  scope->variables = std::move(variables);
  for (const std::string& name : hidden) scope->set(name, Value::missing(name));
  output_ = &text;
  try {
    execute(body, scope);
  } catch (const Raise& e) {
    scope->variables.clear();
    throw_error(kind_of(e.fault()), "chat template, {}: {}", describe_position(source_, pos_), e.message());
  }
  scope->variables.clear();  // macros point back at their scope
  return text;
}

void Interpreter::spend(uint64_t steps) {
  steps_ += static_cast<int64_t>(std::min<uint64_t>(steps, INT32_MAX));
  if (steps_ > limits_.max_steps) raise(Fault::limit, "the template took more than {} steps", limits_.max_steps);
  if (Footprint::live() - memory_at_start_ > static_cast<int64_t>(limits_.max_memory))
    raise(Fault::limit, "the template used more than {} MiB of memory", limits_.max_memory >> 20);
}

std::string Interpreter::text_of(const Value& v) {
  std::string text = str(v);
  spend(text.size() >> (v.is_string() ? 8 : 5));
  return text;
}

std::tm Interpreter::now() const {
  if (now_) return *now_;
  const std::time_t t = std::time(nullptr);
  std::tm local{};
  localtime_r(&t, &local);
  return local;
}

void Interpreter::write(std::string_view text) {
  if (text.size() > limits_.max_output - std::min(output_->size(), limits_.max_output))
    raise(Fault::limit, "the template made more than {} bytes of text", limits_.max_output);
  *output_ += text;
}

ScopePtr Interpreter::inner(const ScopePtr& parent, const std::vector<std::string>& hidden) const {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  for (const std::string& name : hidden) scope->variables.emplace_back(name, Value::missing(name));
  return scope;
}

Value Interpreter::lookup(const std::string& name, const ScopePtr& scope) const {
  if (const Value* v = scope->find(name)) return *v;
  if (auto v = find_global(name)) return *v;
  return Value::missing(name);
}

Interpreter::Flow Interpreter::execute(const Block& body, const ScopePtr& scope) {
  for (const auto& stmt : body) {
    const Flow flow = execute(*stmt, scope);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Stmt& stmt, const ScopePtr& scope) {
  const Depth depth(*this);
  spend(1);
  pos_ = stmt.pos;
  switch (stmt.type) {
    case StmtType::text: write(stmt.text); return Flow::normal;
    case StmtType::output: write(text_of(evaluate(*stmt.expr, scope))); return Flow::normal;
    case StmtType::branch: return execute_branch(stmt, scope);
    case StmtType::loop: {
      const Value iterable = evaluate(*stmt.expr, scope);
      if (!stmt.recursive) return execute_loop(stmt, scope, iterable, 0);
      write(run_loop_nested(stmt, scope, iterable, 0));
      return Flow::normal;
    }
    case StmtType::assign:
      check_namespaces(stmt.target, scope);
      assign(stmt.target, evaluate(*stmt.expr, scope), scope);
      return Flow::normal;
    case StmtType::assign_block: return execute_assign_block(stmt, scope);
    case StmtType::macro: {
      auto macro = std::make_shared<Macro>(stmt, scope);
      keep(macro);
      spend(16);  // it stays until the end
      scope->set(stmt.text, Value(std::move(macro)));
      return Flow::normal;
    }
    case StmtType::call_block: execute_call_block(stmt, scope); return Flow::normal;
    case StmtType::filter_block: return execute_filter_block(stmt, scope);
    case StmtType::with: return execute_with(stmt, scope);
    case StmtType::generation: return execute(stmt.body, inner(scope, stmt.hidden));
    case StmtType::break_loop: return Flow::break_loop;
    case StmtType::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_branch(const Stmt& stmt, const ScopePtr& scope) {
  for (const Branch& branch : stmt.branches)
    if (evaluate(*branch.test, scope).truthy()) return execute(branch.body, scope);
  return execute(stmt.else_body, scope);
}

Interpreter::Flow Interpreter::execute_loop(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int depth) {
  auto items = iterate(iterable);
  std::optional<int64_t> length = length_of(iterable);
  if (stmt.test) {
    items = std::make_unique<FilteredIter>(*this, stmt, scope, std::move(items));
    length.reset();
  }
  const auto loop = std::make_shared<Loop>(std::move(items), length, depth, stmt.recursive ? &stmt : nullptr, scope);
  bool completed = false;  // as in jinja2, an iteration that is left by break or continue does not count
  for (Value item; loop->advance(item);) {
    spend(1);
    const ScopePtr body = inner(scope, stmt.hidden);
    body->set("loop", Value(std::shared_ptr<Object>(loop)));
    assign(stmt.target, item, body);
    const Flow flow = execute(stmt.body, body);
    if (flow == Flow::break_loop) break;
    completed = completed || flow == Flow::normal;
  }
  if (loop.use_count() > 1) keep(loop);  // the template holds on to it, maybe in a cycle
  return completed ? Flow::normal : execute(stmt.else_body, inner(scope, stmt.else_hidden));
}

std::string Interpreter::run_loop_nested(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int depth) {
  const Depth guard(*this);
  std::string text;
  std::string* outer = std::exchange(output_, &text);
  execute_loop(stmt, scope, iterable, depth);
  output_ = outer;
  return text;
}

// When the body is left by an exception the render is over, so output_ need not be restored then.
Interpreter::Flow Interpreter::capture(const Block& body, const ScopePtr& scope, std::string& output) {
  std::string* outer = std::exchange(output_, &output);
  const Flow flow = execute(body, scope);
  output_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::execute_assign_block(const Stmt& stmt, const ScopePtr& scope) {
  std::string text;
  const ScopePtr body = inner(scope, stmt.hidden);
  const Flow flow = capture(stmt.body, body, text);
  if (flow != Flow::normal) return flow;
  Value value{std::move(text)};
  if (stmt.expr) value = evaluate_filter(*stmt.expr, body, &value);
  check_namespaces(stmt.target, scope);
  assign(stmt.target, value, scope);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_filter_block(const Stmt& stmt, const ScopePtr& scope) {
  std::string text;
  const ScopePtr body = inner(scope, stmt.hidden);
  const Flow flow = capture(stmt.body, body, text);
  if (flow != Flow::normal) return flow;
  const Value value{std::move(text)};
  write(text_of(evaluate_filter(*stmt.expr, body, &value)));
  return Flow::normal;
}

void Interpreter::execute_call_block(const Stmt& stmt, const ScopePtr& scope) {
  auto caller = std::make_shared<Macro>(stmt, scope);
  Value value{std::shared_ptr<Object>(caller)};
  write(str(evaluate_call(*stmt.expr, scope, &value)));
  value = Value();
  if (caller.use_count() > 1) keep(std::move(caller));
}

Interpreter::Flow Interpreter::execute_with(const Stmt& stmt, const ScopePtr& scope) {
  const ScopePtr body = inner(scope, stmt.hidden);
  for (const auto& [target, value] : stmt.bindings) assign(target, evaluate(*value, scope), body);
  return execute(stmt.body, body);
}

Value Interpreter::call_macro(const Stmt& macro, const ScopePtr& outer, Args args) {
  const Depth depth(*this);
  if (!outer) raise(Fault::runtime_error, "a macro was called after its template ended");
  const ScopePtr scope = inner(outer, macro.hidden);
  const std::string name = macro.text.empty() ? "None" : quote(macro.text);
  const size_t count = macro.params.size();
  bool found_caller = false;
  std::vector<const Param*> missing;
  for (size_t i = 0; i < count; ++i) {
    const Param& param = macro.params[i];
    found_caller = found_caller || param.name == "caller";
    std::optional<Value> value;
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else {
      value = args.take_keyword(param.name);
    }
    if (value) {
      scope->set(param.name, std::move(*value));
    } else {
      missing.push_back(&param);
      scope->set(param.name, Value::missing(param.name));
    }
  }
  if (macro.uses_caller && !found_caller) {
    auto caller = args.take_keyword("caller");
    scope->set("caller", caller && !caller->is_none() ? *caller : Value::undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    auto kwargs = std::make_shared<Dict>();
    for (const auto& [key, value] : args.keywords) kwargs->set(Value(key), value);
    scope->set("kwargs", Value(std::shared_ptr<const Dict>(std::move(kwargs))));
  } else if (!args.keywords.empty()) {
    const bool caller =
        std::any_of(args.keywords.begin(), args.keywords.end(), [](auto& k) { return k.first == "caller"; });
    if (caller) {
      raise(Fault::type_error,
            "macro {} was invoked with two values for the special caller argument. This is most likely a bug.", name);
    }
    raise(Fault::type_error, "macro {} takes no keyword argument {}", name, quote(args.keywords[0].first));
  }
  if (macro.uses_varargs) {
    const size_t used = std::min(count, args.positional.size());
    scope->set("varargs",
               Value::tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(used), args.positional.end()}));
  } else if (args.positional.size() > count) {
    raise(Fault::type_error, "macro {} takes not more than {} argument(s)", name, count);
  }
  for (const Param* param : missing) {
    scope->set(param->name, param->value
                                ? evaluate(*param->value, scope)
                                : Value::undefined(fmt::format("parameter {} was not provided", quote(param->name))));
  }
  std::string text;
  capture(macro.body, scope, text);
  return Value(std::move(text));
}

// Attributes can only be set on namespaces.
void Interpreter::check_namespaces(const Target& target, const ScopePtr& scope) {
  for (const Target& part : target.parts) check_namespaces(part, scope);
  if (target.attribute.empty()) return;
  if (dynamic_cast<Namespace*>(lookup(target.name, scope).object()) == nullptr)
    raise(Fault::runtime_error, "cannot assign attribute on non-namespace object");
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.attribute.empty()) {
    const Value object = lookup(target.name, scope);
    static_cast<Namespace*>(object.object())->set(target.attribute, value);
    return;
  }
  if (!target.is_tuple) {
    scope->set(target.name, value);
    return;
  }
  const auto items = try_iterate(value);
  if (!items) raise(Fault::type_error, "cannot unpack non-iterable {} object", type_name(value));
  std::vector<Value> values;
  const size_t wanted = target.parts.size();
  for (Value v; items->next(v); values.push_back(std::move(v)))
    if (values.size() == wanted) raise(Fault::value_error, "too many values to unpack (expected {})", wanted);
  if (values.size() < wanted)
    raise(Fault::value_error, "not enough values to unpack (expected {}, got {})", wanted, values.size());
  for (size_t i = 0; i < wanted; ++i) assign(target.parts[i], values[i], scope);
}

}  // namespace ingot::jinja
