#include <algorithm>
#include <iterator>

#include "text/jinja/ops.h"
#include "text/jinja/parser.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

// An expression that stands at `pos` and evaluates others as it goes.
template <typename Body>
Expr lazy(uint32_t pos, Body body) {
  return [pos, body = std::move(body)](Run& run, const ScopePtr& scope) -> Value {
    const Run::Level level(run, pos);
    return body(run, scope);
  };
}

// An expression that stands at `pos` and computes its value from those of `inputs`, evaluated before it in order. An
// absent one is None.
template <typename Body>
Expr strict(uint32_t pos, std::vector<Expr> inputs, Body body) {
  return lazy(pos, [pos, inputs = std::move(inputs), body = std::move(body)](Run& run, const ScopePtr& scope) -> Value {
    std::vector<Value> values;
    values.reserve(inputs.size());
    for (const Expr& input : inputs) values.push_back(input ? input(run, scope) : Value());
    run.pos = pos;
    return body(run, values);
  });
}

// Moves where a list in braces would copy all that an expression consists of.
template <typename... Exprs>
std::vector<Expr> parts(Exprs... exprs) {
  std::vector<Expr> out;
  (out.push_back(std::move(exprs)), ...);
  return out;
}

Expr constant(uint32_t pos, Value value) {
  return lazy(pos, [value = std::move(value)](Run&, const ScopePtr&) { return value; });
}

Expr binary(uint32_t pos, BinaryOp op, Expr left, Expr right) {
  return strict(pos, parts(std::move(left), std::move(right)), [op](Run& run, const std::vector<Value>& v) {
    run.spend_copying(v[0]);
    run.spend_copying(v[1]);
    Value result = apply(op, v[0], v[1]);
    if (op == BinaryOp::mul) run.spend_copying(result);
    if (op == BinaryOp::mod) run.spend_reading(result);
    return result;
  });
}

Value dict_of(Run& run, const std::vector<Value>& keys_and_values) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < keys_and_values.size(); i += 2) {
    run.spend_comparing(keys_and_values[i]);
    dict->set(keys_and_values[i], keys_and_values[i + 1]);
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value slice_of(Run& run, const std::vector<Value>& v) {
  if (v[3].is_none()) {
    run.spend_copying(v[0]);
  } else {
    run.spend_reading(v[0]);
  }
  return slice(v[0], v[1], v[2], v[3]);
}

Value item_of(Run& run, const std::vector<Value>& v) {
  run.spend_comparing(v[1]);
  if (v[0].is_string() && v[0].length() != v[0].text().size()) run.spend_reading(v[0]);
  return get_item(v[0], v[1]);
}

}  // namespace

void Parser::Nested::deeper() {
  if (parser_.nesting_ >= kMaxNesting) parser_.fail("nested too deep");
  ++parser_.nesting_;
  ++levels_;
}

Expr Parser::parse_expression(bool with_condition) {
  const Nested nested(*this, 1);
  return with_condition ? parse_condition() : parse_logical(true);
}

// One expression, or several with commas between them as a tuple.
Expr Parser::parse_tuple(bool with_condition, std::string_view end_name, bool parenthesized) {
  const uint32_t pos = current().pos;
  const auto at_end = [&] {
    return current().type == TokenType::variable_end || current().type == TokenType::block_end || is_op(")") ||
           (!end_name.empty() && is_name(end_name));
  };
  std::vector<Expr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_op(",");
    if (at_end()) break;
    items.push_back(parse_expression(with_condition));
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !parenthesized) fail_expected("");
  return strict(pos, std::move(items), [](Run&, std::vector<Value>& v) { return Value::tuple(std::move(v)); });
}

Expr Parser::parse_condition() {
  const uint32_t pos = current().pos;
  Nested nested(*this, 0);
  Expr value = parse_logical(true);
  while (skip_name("if")) {
    nested.deeper();
    Expr test = parse_logical(true);
    Expr otherwise = skip_name("else") ? parse_condition() : Expr();
    if (!otherwise) {
      const auto line = 1 + std::count(source_.begin(), source_.begin() + pos, '\n');
      otherwise = constant(pos, Value::undefined(fmt::format(
                                    "the inline if-expression on line {} evaluated to false and no else section was "
                                    "defined.",
                                    line)));
    }
    value = lazy(pos, [test = std::move(test), value = std::move(value), otherwise = std::move(otherwise)](
                          Run& run, const ScopePtr& scope) {
      return test(run, scope).truthy() ? value(run, scope) : otherwise(run, scope);
    });
  }
  return value;
}

Expr Parser::parse_logical(bool is_or) {
  const uint32_t pos = current().pos;
  Nested nested(*this, 0);
  Expr left = is_or ? parse_logical(false) : parse_not();
  while (skip_name(is_or ? "or" : "and")) {
    nested.deeper();
    Expr right = is_or ? parse_logical(false) : parse_not();
    left = lazy(pos, [is_or, left = std::move(left), right = std::move(right)](Run& run, const ScopePtr& scope) {
      Value value = left(run, scope);
      return value.truthy() == is_or ? value : right(run, scope);
    });
  }
  return left;
}

Expr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(*this, 1);
  const uint32_t pos = advance().pos;
  return strict(pos, parts(parse_not()), [](Run&, const std::vector<Value>& v) { return !v[0].truthy(); });
}

// a < b < c is a < b and b < c, as in Python.
Expr Parser::parse_compare() {
  static constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
      {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<", Comparison::lt},
      {"<=", Comparison::le}, {">", Comparison::gt},  {">=", Comparison::ge}};
  const uint32_t pos = current().pos;
  Expr first = parse_sum();
  std::vector<std::pair<Comparison, Expr>> rest;
  while (true) {
    const auto* found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [this](const auto& c) { return is_op(c.first); });
    Comparison comparison = Comparison::in;
    if (found != std::end(kComparisons)) {
      comparison = found->second;
      advance();
    } else if (is_name("not") && look().type == TokenType::name && look().text == "in") {
      comparison = Comparison::not_in;
      advance();
      advance();
    } else if (!skip_name("in")) {
      break;
    }
    rest.emplace_back(comparison, parse_sum());
  }
  if (rest.empty()) return first;
  return lazy(pos, [pos, first = std::move(first), rest = std::move(rest)](Run& run, const ScopePtr& scope) -> Value {
    Value left = first(run, scope);
    for (const auto& [comparison, expr] : rest) {
      Value right = expr(run, scope);
      run.pos = pos;
      if (!compare(run, comparison, left, right)) return false;
      left = std::move(right);
    }
    return true;
  });
}

Expr Parser::parse_sum() {
  const uint32_t pos = current().pos;
  Nested nested(*this, 0);
  Expr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    nested.deeper();
    const BinaryOp op = advance().text == "+" ? BinaryOp::add : BinaryOp::sub;
    left = binary(pos, op, std::move(left), parse_concat());
  }
  return left;
}

Expr Parser::parse_concat() {
  const uint32_t pos = current().pos;
  std::vector<Expr> items;
  items.push_back(parse_product());
  while (skip_op("~")) items.push_back(parse_product());
  if (items.size() == 1) return std::move(items[0]);
  return strict(pos, std::move(items), [](Run& run, const std::vector<Value>& v) {
    std::string out;
    for (const Value& item : v) out += run.text_of(item);
    run.spend(out.size() >> 7);
    return Value(std::move(out));
  });
}

Expr Parser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
      {"*", BinaryOp::mul}, {"/", BinaryOp::div}, {"//", BinaryOp::floor_div}, {"%", BinaryOp::mod}};
  const uint32_t pos = current().pos;
  Nested nested(*this, 0);
  Expr left = parse_unary();
  while (true) {
    if (is_op("**")) fail("the operator ** is not supported");
    const auto* found =
        std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& op) { return is_op(op.first); });
    if (found == std::end(kOps)) return left;
    nested.deeper();
    advance();
    left = binary(pos, found->second, std::move(left), parse_unary());
  }
}

Expr Parser::parse_unary(bool with_filter) {
  const uint32_t pos = current().pos;
  Nested nested(*this, is_op("-") || is_op("+"));
  Expr e;
  if (is_op("-") || is_op("+")) {
    const bool minus = advance().text == "-";
    e = strict(pos, parts(parse_unary(false)),
               [minus](Run&, const std::vector<Value>& v) { return minus ? negate(v[0]) : negate(negate(v[0])); });
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e), pos);
  while (with_filter) {
    if (skip_op("|")) {
      nested.deeper();
      e = lazy(pos, [value = std::move(e), filter = parse_filter(pos)](Run& run, const ScopePtr& scope) {
        return filter(run, scope, value(run, scope));
      });
    } else if (is_name("is")) {
      nested.deeper();
      e = parse_test(std::move(e), pos);
    } else if (is_op("(")) {
      nested.deeper();
      e = parse_call(std::move(e), pos);
    } else {
      break;
    }
  }
  return e;
}

Expr Parser::parse_primary() {
  const uint32_t pos = current().pos;
  const TokenType type = current().type;
  if (type == TokenType::name) return parse_name();
  if (type == TokenType::string) {
    std::string text;
    while (current().type == TokenType::string) text += advance().text;
    return constant(pos, Value(std::move(text)));
  }
  if (type == TokenType::integer) return constant(pos, Value(advance().integer));
  if (type == TokenType::real) return constant(pos, Value(advance().real));
  if (skip_op("(")) {
    Expr e = parse_tuple(true, "", true);
    expect_op(")");
    return e;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  fail_expected("an expression");
}

Expr Parser::parse_name() {
  const uint32_t pos = current().pos;
  const std::string name = advance().text;
  if (name == "true" || name == "True") return constant(pos, Value(true));
  if (name == "false" || name == "False") return constant(pos, Value(false));
  if (name == "none" || name == "None") return constant(pos, Value());
  return lazy(pos, [name](Run&, const ScopePtr& scope) { return lookup(name, scope); });
}

Expr Parser::parse_list() {
  const uint32_t pos = advance().pos;
  std::vector<Expr> items;
  while (!is_op("]")) {
    if (!items.empty()) expect_op(",");
    if (is_op("]")) break;
    items.push_back(parse_expression());
  }
  expect_op("]");
  return strict(pos, std::move(items), [](Run&, std::vector<Value>& v) { return Value::list(std::move(v)); });
}

Expr Parser::parse_dict() {
  const uint32_t pos = advance().pos;
  std::vector<Expr> items;
  while (!is_op("}")) {
    if (!items.empty()) expect_op(",");
    if (is_op("}")) break;
    items.push_back(parse_expression());
    expect_op(":");
    items.push_back(parse_expression());
  }
  expect_op("}");
  return strict(pos, std::move(items), dict_of);
}

Expr Parser::parse_postfix(Expr e, uint32_t pos) {
  Nested nested(*this, 0);
  while (true) {
    if (skip_op(".")) {
      e = parse_attribute(std::move(e), pos);
    } else if (skip_op("[")) {
      e = parse_bracket(std::move(e), pos);
    } else if (is_op("(")) {
      e = parse_call(std::move(e), pos);
    } else {
      return e;
    }
    nested.deeper();
  }
}

Expr Parser::parse_attribute(Expr object, uint32_t pos) {
  if (current().type == TokenType::integer)
    return strict(pos, parts(std::move(object), constant(pos, Value(advance().integer))), item_of);
  if (current().type != TokenType::name) fail("expected name or number");
  return strict(pos, parts(std::move(object)),
                [name = advance().text](Run&, const std::vector<Value>& v) { return get_attribute(v[0], name); });
}

// What follows `[`: an index or a slice.
Expr Parser::parse_bracket(Expr object, uint32_t pos) {
  std::vector<Expr> bounds = parts(std::move(object), is_op(":") ? Expr() : parse_expression());
  const bool is_slice = is_op(":");
  while (bounds.size() < 4 && skip_op(":")) bounds.push_back(is_op(":") || is_op("]") ? Expr() : parse_expression());
  if (is_op(",")) fail("several indices are not supported");
  expect_op("]");
  if (!is_slice) return strict(pos, std::move(bounds), item_of);
  bounds.resize(4);
  return strict(pos, std::move(bounds), slice_of);
}

Parser::CallArgs Parser::parse_arguments() {
  expect_op("(");
  CallArgs args;
  const auto ensure = [&](bool ok) {
    if (!ok) fail("invalid syntax for function call expression");
  };
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) expect_op(",");
    if (is_op(")")) break;
    if (skip_op("*")) {
      ensure(!args.star && !args.double_star);
      args.star = parse_expression();
    } else if (skip_op("**")) {
      ensure(!args.double_star);
      args.double_star = parse_expression();
    } else if (current().type == TokenType::name && look().type == TokenType::op && look().text == "=") {
      ensure(!args.double_star);
      std::string name = advance().text;
      advance();
      for (const auto& [other, value] : args.keywords)
        if (other == name) fail("keyword argument repeated: " + name);
      args.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!args.star && !args.double_star && args.keywords.empty());
      args.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return args;
}

Args Parser::evaluate(const CallArgs& call_args, Run& run, const ScopePtr& scope) {
  Args args;
  for (const auto& arg : call_args.positional) args.positional.push_back(arg(run, scope));
  for (const auto& [name, arg] : call_args.keywords) args.keywords.emplace_back(name, arg(run, scope));
  if (call_args.star)
    for (Value& v : to_vector(call_args.star(run, scope))) args.positional.push_back(std::move(v));
  if (!call_args.double_star) return args;
  const Value more = call_args.double_star(run, scope);
  if (!more.is_dict()) raise("argument after ** must be a mapping, not {}", type_name(more));
  for (const auto& [key, value] : more.dict().entries()) {
    if (!key.is_string()) raise("keywords must be strings");
    for (const auto& [name, old] : args.keywords)
      if (name == key.text()) raise("got multiple values for keyword argument {}", quote(name));
    args.keywords.emplace_back(key.text(), value);
    run.spend(args.keywords.size());
  }
  return args;
}

Expr Parser::parse_call(Expr function, uint32_t pos) {
  return lazy(pos,
              [pos, function = std::move(function), call_args = parse_arguments()](Run& run, const ScopePtr& scope) {
                const Value callee = function(run, scope);
                Args args = evaluate(call_args, run, scope);
                run.pos = pos;
                return run.call(callee, std::move(args));
              });
}

// One filter; its name is the current token. A filter that does not exist only matters when it is reached.
Parser::FilterChain Parser::parse_filter(uint32_t pos) {
  const std::string name = expect_any_name();
  CallArgs call_args = is_op("(") ? parse_arguments() : CallArgs();
  return [pos, name, call_args = std::move(call_args)](Run& run, const ScopePtr& scope, Value value) {
    Args args = evaluate(call_args, run, scope);
    args.positional.insert(args.positional.begin(), std::move(value));
    run.pos = pos;
    return run.call_filter(name, args);
  };
}

// Filters with | between them, without the value they are applied to.
Parser::FilterChain Parser::parse_filters() {
  const uint32_t pos = current().pos;
  Nested nested(*this, 0);
  FilterChain chain = parse_filter(pos);
  while (skip_op("|")) {
    nested.deeper();
    chain = [first = std::move(chain), then = parse_filter(pos)](Run& run, const ScopePtr& scope, Value value) {
      return then(run, scope, first(run, scope, std::move(value)));
    };
  }
  return chain;
}

Expr Parser::parse_test(Expr value, uint32_t pos) {
  advance();  // is
  const bool wanted = !skip_name("not");
  const std::string name = expect_any_name();
  const Token& next = current();
  const bool starts_value = next.type == TokenType::name || next.type == TokenType::string ||
                            next.type == TokenType::integer || next.type == TokenType::real || is_op("[") || is_op("{");
  CallArgs call_args;
  if (is_op("(")) {
    call_args = parse_arguments();
  } else if (starts_value && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("You cannot chain multiple tests with is");
    const uint32_t argument = current().pos;
    call_args.positional.push_back(parse_postfix(parse_primary(), argument));
  }
  return lazy(pos,
              [pos, wanted, name, value = std::move(value), call_args = std::move(call_args)](
                  Run& run, const ScopePtr& scope) -> Value {
                Value tested = value(run, scope);
                Args args = evaluate(call_args, run, scope);
                args.positional.insert(args.positional.begin(), std::move(tested));
                run.pos = pos;
                return run.call_test(name, args) == wanted;
              });
}

}  // namespace ingot::jinja
