#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/objects.h"
#include "text/jinja/registry.h"
#include "text/jinja/text.h"

namespace ingot::jinja {

Value Interpreter::evaluate(const Expr& e, const ScopePtr& scope) {
  const Depth depth(*this);
  spend(1);
  pos_ = e.pos;
  switch (e.type) {
    case ExprType::constant: return e.value;
    case ExprType::name: return lookup(e.text, scope);
    case ExprType::list:
    case ExprType::tuple: return evaluate_items(e, scope);
    case ExprType::dict: return evaluate_dict(e, scope);
    case ExprType::attribute: {
      const Value object = evaluate(*e.left, scope);
      pos_ = e.pos;
      return get_attribute(object, e.text);
    }
    case ExprType::item: {
      const Value object = evaluate(*e.left, scope);
      const Value key = evaluate(*e.right, scope);
      pos_ = e.pos;
      spend_comparing(key);
      if (object.is_string() && object.length() != object.text().size()) spend_reading(object);
      return get_item(object, key);
    }
    case ExprType::slice: return evaluate_slice(e, scope);
    case ExprType::call: return evaluate_call(e, scope, nullptr);
    case ExprType::filter: return evaluate_filter(e, scope, nullptr);
    case ExprType::test: return evaluate_test(e, scope);
    case ExprType::binary: return evaluate_binary(e, scope);
    case ExprType::negative: return negate(evaluate(*e.left, scope));
    case ExprType::positive: return plus(evaluate(*e.left, scope));
    case ExprType::logical_not: return !evaluate(*e.left, scope).truthy();
    case ExprType::logical_and: {
      Value left = evaluate(*e.left, scope);
      return left.truthy() ? evaluate(*e.right, scope) : left;
    }
    case ExprType::logical_or: {
      Value left = evaluate(*e.left, scope);
      return left.truthy() ? left : evaluate(*e.right, scope);
    }
    case ExprType::concat: return evaluate_concat(e, scope);
    case ExprType::compare: return evaluate_compare(e, scope);
    case ExprType::conditional: return evaluate_conditional(e, scope);
  }
  return Value();
}

Value Interpreter::evaluate_items(const Expr& e, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(e.items.size());
  for (const auto& item : e.items) items.push_back(evaluate(*item, scope));
  return e.type == ExprType::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_dict(const Expr& e, const ScopePtr& scope) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < e.items.size(); i += 2) {
    Value key = evaluate(*e.items[i], scope);
    spend_comparing(key);
    dict->set(std::move(key), evaluate(*e.items[i + 1], scope));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Interpreter::evaluate_slice(const Expr& e, const ScopePtr& scope) {
  const Value object = evaluate(*e.left, scope);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i)
    if (e.items[i]) bounds[i] = evaluate(*e.items[i], scope);
  pos_ = e.pos;
  if (bounds[2].is_none()) {
    spend_copying(object);
  } else {
    spend_reading(object);
  }
  return slice(object, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::evaluate_binary(const Expr& e, const ScopePtr& scope) {
  const Value left = evaluate(*e.left, scope);
  const Value right = evaluate(*e.right, scope);
  pos_ = e.pos;
  spend_copying(left);
  spend_copying(right);
  Value result = apply(e.op, left, right);
  if (e.op == BinaryOp::mul) spend_copying(result);
  if (e.op == BinaryOp::mod) spend_reading(result);
  return result;
}

Value Interpreter::evaluate_concat(const Expr& e, const ScopePtr& scope) {
  std::string out;
  for (const auto& item : e.items) {
    const Value v = evaluate(*item, scope);
    out += text_of(v);
  }
  spend(out.size() >> 7);
  return Value(std::move(out));
}

bool Interpreter::compare_pair(Comparison comparison, const Value& a, const Value& b) {
  spend_comparing(a);
  spend_comparing(b);
  switch (comparison) {
    case Comparison::eq: return equal(a, b);
    case Comparison::ne: return !equal(a, b);
    case Comparison::lt: return compare(a, b, "<") < 0;
    case Comparison::le: return compare(a, b, "<=") <= 0;
    case Comparison::gt: return compare(a, b, ">") > 0;
    case Comparison::ge: return compare(a, b, ">=") >= 0;
    case Comparison::in: return contains(b, a);
    case Comparison::not_in: return !contains(b, a);
  }
  return false;
}

// a < b < c is a < b and b < c, as in Python.
Value Interpreter::evaluate_compare(const Expr& e, const ScopePtr& scope) {
  Value left = evaluate(*e.left, scope);
  for (size_t i = 0; i < e.items.size(); ++i) {
    Value right = evaluate(*e.items[i], scope);
    pos_ = e.pos;
    if (!compare_pair(e.comparisons[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_conditional(const Expr& e, const ScopePtr& scope) {
  if (evaluate(*e.items[0], scope).truthy()) return evaluate(*e.left, scope);
  if (e.right) return evaluate(*e.right, scope);
  const auto line = 1 + std::count(source_.begin(), source_.begin() + e.pos, '\n');
  return Value::undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.", line));
}

void Interpreter::evaluate_args(const CallArgs& call_args, const ScopePtr& scope, Args& args) {
  for (const auto& arg : call_args.positional) args.positional.push_back(evaluate(*arg, scope));
  for (const auto& [name, arg] : call_args.keywords) args.keywords.emplace_back(name, evaluate(*arg, scope));
  if (call_args.star) {
    for (Value& v : to_vector(evaluate(*call_args.star, scope))) args.positional.push_back(std::move(v));
  }
  if (!call_args.double_star) return;
  const Value more = evaluate(*call_args.double_star, scope);
  if (!more.is_dict()) raise(Fault::type_error, "argument after ** must be a mapping, not {}", type_name(more));
  for (const auto& [key, value] : more.dict().entries()) {
    if (!key.is_string()) raise(Fault::type_error, "keywords must be strings");
    for (const auto& [name, old] : args.keywords)
      if (name == key.text()) raise(Fault::type_error, "got multiple values for keyword argument {}", quote(name));
    args.keywords.emplace_back(key.text(), value);
    spend(args.keywords.size());
  }
}

Value Interpreter::evaluate_call(const Expr& e, const ScopePtr& scope, const Value* caller) {
  const Value function = evaluate(*e.left, scope);
  Args args;
  evaluate_args(e.args, scope, args);
  if (caller != nullptr) args.keywords.emplace_back("caller", *caller);
  pos_ = e.pos;
  return call(function, std::move(args));
}

Value Interpreter::call(const Value& function, Args args) {
  require_defined(function);
  Object* object = function.object();
  if (object == nullptr || !object->is_callable())
    raise(Fault::type_error, "'{}' object is not callable", type_name(function));
  if (const Value* self = object->self()) spend_reading(*self);
  for (const Value& v : args.positional) spend_copying(v);
  Value result = object->call(*this, std::move(args));
  spend_reading(result);
  return result;
}

Value Interpreter::evaluate_filter(const Expr& e, const ScopePtr& scope, const Value* input) {
  Args args;
  if (!e.left) {
    args.positional.push_back(*input);
  } else if (input != nullptr && e.left->type == ExprType::filter) {
    args.positional.push_back(evaluate_filter(*e.left, scope, input));
  } else {
    args.positional.push_back(evaluate(*e.left, scope));
  }
  evaluate_args(e.args, scope, args);
  pos_ = e.pos;
  if (e.filter == nullptr) raise(Fault::runtime_error, "No filter named {} found.", quote(e.text));
  return run_filter(*e.filter, args);
}

Value Interpreter::evaluate_test(const Expr& e, const ScopePtr& scope) {
  Args args;
  args.positional.push_back(evaluate(*e.left, scope));
  evaluate_args(e.args, scope, args);
  pos_ = e.pos;
  if (e.test == nullptr) raise(Fault::runtime_error, "No test named {} found.", quote(e.text));
  return e.test->function(*this, args);
}

Value Interpreter::call_filter(const std::string& name, Args& args) {
  const FilterEntry* filter = find_filter(name);
  if (is_unsupported_filter(name)) raise(Fault::unsupported, "the filter {} is not supported", quote(name));
  if (filter == nullptr) raise(Fault::runtime_error, "No filter named {}.", quote(name));
  const Depth depth(*this);
  spend(1);
  return run_filter(*filter, args);
}

Value Interpreter::run_filter(const FilterEntry& filter, Args& args) {
  for (const Value& v : args.positional) spend_reading(v);
  Value result = filter.function(*this, args);
  spend_reading(result);
  return result;
}

bool Interpreter::call_test(const std::string& name, Args& args) {
  const TestEntry* test = find_test(name);
  if (test == nullptr) raise(Fault::runtime_error, "No test named {}.", quote(name));
  spend(1);
  return test->function(*this, args);
}

}  // namespace ingot::jinja
