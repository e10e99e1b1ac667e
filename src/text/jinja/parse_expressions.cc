#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/registry.h"
#include "text/jinja/text.h"

namespace ingot::jinja {

ExprPtr Parser::finish(ExprPtr e) const {
  int deepest = 0;
  const auto visit = [&deepest](const ExprPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  visit(e->left);
  visit(e->right);
  for (const auto& item : e->items) visit(item);
  for (const auto& item : e->args.positional) visit(item);
  for (const auto& [name, item] : e->args.keywords) visit(item);
  visit(e->args.star);
  visit(e->args.double_star);
  e->depth = deepest + 1;
  if (e->depth > kMaxExprDepth) fail_at(e->pos, "the expression is nested too deep");
  return e;
}

ExprPtr Parser::parse_expression(bool with_condition) {
  const Nested nested(*this);
  return with_condition ? parse_condition() : parse_or();
}

// One expression, or several with commas between them as a tuple.
ExprPtr Parser::parse_tuple(bool with_condition, std::string_view end_name, bool parenthesized) {
  const uint32_t pos = current().pos;
  const auto at_end = [&] {
    return current().type == TokenType::variable_end || current().type == TokenType::block_end || is_op(")") ||
           (!end_name.empty() && is_name(end_name));
  };
  std::vector<ExprPtr> items;
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
  auto e = make(ExprType::tuple, pos);
  e->items = std::move(items);
  return finish(std::move(e));
}

ExprPtr Parser::parse_condition() {
  const uint32_t pos = current().pos;
  const size_t unknown = unknown_.size();
  ExprPtr value = parse_or();
  while (skip_name("if")) {
    unknown_.resize(unknown);  // what is conditional only fails when reached
    const Restore restore(soft_, true);
    auto e = make(ExprType::conditional, pos);
    e->left = std::move(value);
    e->items.push_back(parse_or());
    if (skip_name("else")) {
      const Nested nested(*this);
      e->right = parse_condition();
    }
    value = finish(std::move(e));
  }
  return value;
}

ExprPtr Parser::parse_or() {
  const uint32_t pos = current().pos;
  ExprPtr left = parse_and();
  while (skip_name("or")) {
    auto e = make(ExprType::logical_or, pos);
    e->left = std::move(left);
    e->right = parse_and();
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::parse_and() {
  const uint32_t pos = current().pos;
  ExprPtr left = parse_not();
  while (skip_name("and")) {
    auto e = make(ExprType::logical_and, pos);
    e->left = std::move(left);
    e->right = parse_not();
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(*this);
  auto e = make(ExprType::logical_not, advance().pos);
  e->left = parse_not();
  return finish(std::move(e));
}

ExprPtr Parser::parse_compare() {
  static constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
      {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<", Comparison::lt},
      {"<=", Comparison::le}, {">", Comparison::gt},  {">=", Comparison::ge}};
  auto e = make(ExprType::compare, current().pos);
  e->left = parse_sum();
  while (true) {
    const auto* found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [this](const auto& c) { return is_op(c.first); });
    if (found != std::end(kComparisons)) {
      advance();
      e->comparisons.push_back(found->second);
    } else if (skip_name("in")) {
      e->comparisons.push_back(Comparison::in);
    } else if (is_name("not") && look().type == TokenType::name && look().text == "in") {
      advance();
      advance();
      e->comparisons.push_back(Comparison::not_in);
    } else {
      break;
    }
    e->items.push_back(parse_sum());
  }
  return e->items.empty() ? std::move(e->left) : finish(std::move(e));
}

ExprPtr Parser::parse_sum() {
  const uint32_t pos = current().pos;
  ExprPtr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    auto e = make(ExprType::binary, pos);
    e->op = advance().text == "+" ? BinaryOp::add : BinaryOp::sub;
    e->left = std::move(left);
    e->right = parse_concat();
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const uint32_t pos = current().pos;
  ExprPtr first = parse_product();
  if (!is_op("~")) return first;
  auto e = make(ExprType::concat, pos);
  e->items.push_back(std::move(first));
  while (skip_op("~")) e->items.push_back(parse_product());
  return finish(std::move(e));
}

ExprPtr Parser::parse_product() {
  const uint32_t pos = current().pos;
  ExprPtr left = parse_power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    auto e = make(ExprType::binary, pos);
    const std::string& op = advance().text;
    e->op = op == "*" ? BinaryOp::mul : op == "/" ? BinaryOp::div : op == "//" ? BinaryOp::floor_div : BinaryOp::mod;
    e->left = std::move(left);
    e->right = parse_power();
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::parse_power() {
  const uint32_t pos = current().pos;
  ExprPtr left = parse_unary();
  while (skip_op("**")) {
    auto e = make(ExprType::binary, pos);
    e->op = BinaryOp::pow;
    e->left = std::move(left);
    e->right = parse_unary();
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    const Nested nested(*this);
    e = make(is_op("-") ? ExprType::negative : ExprType::positive, current().pos);
    advance();
    e->left = parse_unary(false);
    e = finish(std::move(e));
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e));
  return with_filter ? parse_filter_chain(std::move(e)) : std::move(e);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  if (token.type == TokenType::name) return parse_name();
  if (token.type == TokenType::string) return parse_string();
  if (token.type == TokenType::integer || token.type == TokenType::real) {
    auto e = make(ExprType::constant, token.pos);
    e->value = token.type == TokenType::integer ? Value(token.integer) : Value(token.real);
    advance();
    return e;
  }
  if (skip_op("(")) {
    ExprPtr e = parse_tuple(true, "", true);
    expect_op(")");
    return e;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  fail_expected("an expression");
}

ExprPtr Parser::parse_name() {
  const Token& token = advance();
  auto e = make(ExprType::constant, token.pos);
  const std::string& name = token.text;
  if (name == "true" || name == "True") {
    e->value = Value(true);
  } else if (name == "false" || name == "False") {
    e->value = Value(false);
  } else if (name != "none" && name != "None") {
    e->type = ExprType::name;
    e->text = name;
    note_load(name);
  }
  return e;
}

ExprPtr Parser::parse_string() {
  auto e = make(ExprType::constant, current().pos);
  std::string text;
  while (current().type == TokenType::string) text += advance().text;
  e->value = Value(std::move(text));
  return e;
}

ExprPtr Parser::parse_list() {
  auto e = make(ExprType::list, advance().pos);
  while (!is_op("]")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("]")) break;
    e->items.push_back(parse_expression());
  }
  expect_op("]");
  return finish(std::move(e));
}

ExprPtr Parser::parse_dict() {
  auto e = make(ExprType::dict, advance().pos);
  while (!is_op("}")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("}")) break;
    e->items.push_back(parse_expression());
    expect_op(":");
    e->items.push_back(parse_expression());
  }
  expect_op("}");
  return finish(std::move(e));
}

ExprPtr Parser::parse_postfix(ExprPtr e) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      e = parse_subscript(std::move(e));
    } else if (is_op("(")) {
      e = parse_call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::parse_filter_chain(ExprPtr e) {
  while (true) {
    if (is_op("|")) {
      advance();
      e = parse_filter(std::move(e));
    } else if (is_name("is")) {
      e = parse_test(std::move(e));
    } else if (is_op("(")) {
      e = parse_call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const uint32_t pos = object->pos;
  if (advance().text == "[") return parse_bracket(std::move(object), pos);
  const Token& token = advance();
  if (token.type == TokenType::name) {
    auto e = make(ExprType::attribute, pos);
    e->left = std::move(object);
    e->text = token.text;
    return finish(std::move(e));
  }
  if (token.type != TokenType::integer) fail_at(token.pos, "expected name or number");
  auto e = make(ExprType::item, pos);
  e->left = std::move(object);
  e->right = make(ExprType::constant, token.pos);
  e->right->value = Value(token.integer);
  return finish(std::move(e));
}

// What follows `[`: an index, a slice, or several indices as a tuple.
ExprPtr Parser::parse_bracket(ExprPtr object, uint32_t pos) {
  std::vector<ExprPtr> indices;
  std::vector<ExprPtr> bounds;
  bool is_slice = false;
  while (!is_op("]")) {
    if (!indices.empty() || is_slice) expect_op(",");
    if (is_slice) fail("slices in a tuple index are not supported");
    ExprPtr start = is_op(":") ? nullptr : parse_expression();
    if (!is_op(":")) {
      indices.push_back(std::move(start));
      continue;
    }
    if (!indices.empty()) fail("slices in a tuple index are not supported");
    is_slice = true;
    bounds.push_back(std::move(start));
    while (bounds.size() < 3 && skip_op(":"))
      bounds.push_back(is_op(":") || is_op("]") || is_op(",") ? nullptr : parse_expression());
    bounds.resize(3);
  }
  expect_op("]");
  auto e = make(is_slice ? ExprType::slice : ExprType::item, pos);
  e->left = std::move(object);
  if (is_slice) {
    e->items = std::move(bounds);
  } else if (indices.size() == 1) {
    e->right = std::move(indices[0]);
  } else {
    e->right = make(ExprType::tuple, pos);
    e->right->items = std::move(indices);
    e->right = finish(std::move(e->right));
  }
  return finish(std::move(e));
}

CallArgs Parser::parse_arguments() {
  const uint32_t pos = current().pos;
  expect_op("(");
  CallArgs args;
  const auto ensure = [&](bool ok) {
    if (!ok) fail_at(pos, "invalid syntax for function call expression");
  };
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
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
        if (other == name) fail_at(pos, "keyword argument repeated: " + name);
      args.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!args.star && !args.double_star && args.keywords.empty());
      args.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return args;
}

ExprPtr Parser::parse_call(ExprPtr function) {
  auto e = make(ExprType::call, function->pos);
  e->left = std::move(function);
  e->args = parse_arguments();
  return finish(std::move(e));
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_any_name();
  while (skip_op(".")) {
    name += '.';
    name += expect_any_name();
  }
  return name;
}

void Parser::note_unknown(const Expr& e, std::string_view kind) {
  if (!soft_) unknown_.emplace_back(e.pos, fmt::format("No {} named {}.", kind, quote(e.text)));
}

// One filter; its name is the current token. `e` is null in a filter block.
ExprPtr Parser::parse_filter(ExprPtr value) {
  auto e = make(ExprType::filter, value ? value->pos : current().pos);
  const uint32_t pos = current().pos;
  e->left = std::move(value);
  e->text = parse_dotted_name();
  if (is_unsupported_filter(e->text)) fail_at(pos, fmt::format("the filter {} is not supported", quote(e->text)));
  if (is_op("(")) e->args = parse_arguments();
  e->filter = find_filter(e->text);
  if (e->filter == nullptr) note_unknown(*e, "filter");
  return finish(std::move(e));
}

ExprPtr Parser::parse_test(ExprPtr value) {
  const uint32_t pos = value->pos;
  advance();
  const bool negated = skip_name("not");
  auto e = make(ExprType::test, pos);
  e->left = std::move(value);
  e->text = parse_dotted_name();
  const Token& next = current();
  const bool starts_value = next.type == TokenType::name || next.type == TokenType::string ||
                            next.type == TokenType::integer || next.type == TokenType::real || is_op("[") || is_op("{");
  if (is_op("(")) {
    e->args = parse_arguments();
  } else if (starts_value && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("You cannot chain multiple tests with is");
    e->args.positional.push_back(parse_postfix(parse_primary()));
  }
  e->test = find_test(e->text);
  if (e->test == nullptr) note_unknown(*e, "test");
  e = finish(std::move(e));
  if (!negated) return e;
  auto inverse = make(ExprType::logical_not, pos);
  inverse->left = std::move(e);
  return finish(std::move(inverse));
}

}  // namespace ingot::jinja
