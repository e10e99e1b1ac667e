#include <algorithm>
#include <iterator>

#include "text/jinja/parser.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::data: return "template data / text";
    case TokenType::block_begin: return "begin of statement block";
    case TokenType::block_end: return "end of statement block";
    case TokenType::variable_begin: return "begin of print statement";
    case TokenType::variable_end: return "end of print statement";
    case TokenType::name:
    case TokenType::op: return token.text;
    case TokenType::string: return "string";
    case TokenType::integer: return "integer";
    case TokenType::real: return "float";
    case TokenType::eof: return "end of template";
  }
  return "";
}

std::string join_quoted(const std::vector<std::string_view>& names) {
  std::string out;
  for (std::string_view name : names) out += (out.empty() ? "" : " or ") + quote(name);
  return out;
}

}  // namespace

Parser::Parser(const std::string& source) : source_(source), tokens_(tokenize(source)) {}

Block Parser::parse() { return parse_until({}, false); }

const Token& Parser::advance() {
  const Token& token = tokens_[index_];
  if (token.type != TokenType::eof) ++index_;
  return token;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  advance();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_expected(op);
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

std::string Parser::expect_any_name() {
  if (current().type != TokenType::name) fail_expected("name");
  return advance().text;
}

void Parser::expect(TokenType type) {
  if (current().type != type) fail_expected(describe(Token{type, 0, ""}));
  advance();
}

void Parser::fail_at(uint32_t pos, std::string_view message) const { syntax_error(source_, pos, message); }

void Parser::fail_expected(std::string_view what) const {
  const std::string got = describe(current());
  if (what.empty()) fail(fmt::format("Expected an expression, got {}", quote(got)));
  if (what == "an expression") fail(fmt::format("unexpected {}", quote(got)));
  if (current().type == TokenType::eof) fail(fmt::format("unexpected end of template, expected {}.", quote(what)));
  fail(fmt::format("expected token {}, got {}", quote(what), quote(got)));
}

// For a tag nothing is known about (`name`), or the end of the template where a tag should be closed.
void Parser::fail_tag(const std::string* name, uint32_t pos) const {
  std::string message =
      name == nullptr ? "Unexpected end of template." : fmt::format("Encountered unknown tag {}.", quote(*name));
  if (!end_tags_.empty()) {
    const std::string looking = join_quoted(end_tags_.back());
    const bool known = name != nullptr && std::any_of(end_tags_.begin(), end_tags_.end(), [&](const auto& ends) {
                         return std::find(ends.begin(), ends.end(), *name) != ends.end();
                       });
    message += known ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " +
                           looking + "."
                     : " Jinja was looking for the following tags: " + looking + ".";
  }
  if (!open_tags_.empty())
    message += fmt::format(" The innermost block that needs to be closed is {}.", quote(open_tags_.back()));
  fail_at(pos, message);
}

// Statements up to one of the tags in `ends`, which becomes the current token, or the end of the template when there
// are none.
Block Parser::parse_until(const std::vector<std::string_view>& ends, bool skip_end) {
  const Nested nested(*this);
  Block body;
  if (!ends.empty()) end_tags_.push_back(ends);
  while (current().type != TokenType::eof) {
    const Token& token = current();
    if (token.type == TokenType::data) {
      auto stmt = std::make_unique<Stmt>(StmtType::text, token.pos);
      stmt->text = token.text;
      body.push_back(std::move(stmt));
      advance();
    } else if (token.type == TokenType::variable_begin) {
      auto stmt = std::make_unique<Stmt>(StmtType::output, token.pos);
      advance();
      stmt->expr = parse_tuple();
      expect(TokenType::variable_end);
      body.push_back(std::move(stmt));
    } else {
      expect(TokenType::block_begin);
      if (current().type == TokenType::name && std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
        end_tags_.pop_back();
        if (skip_end) advance();
        return body;
      }
      body.push_back(parse_statement());
      expect(TokenType::block_end);
    }
    if (!unknown_.empty()) fail_at(unknown_[0].first, unknown_[0].second);
  }
  if (!ends.empty()) fail_tag(nullptr, current().pos);
  return body;
}

// The body of a tag, from the end of its opening tag on.
Block Parser::parse_body(const std::vector<std::string_view>& ends) {
  skip_op(":");
  expect(TokenType::block_end);
  return parse_until(ends, ends.size() == 1);
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  if (current().type != TokenType::name) fail("tag name expected");
  open_tags_.push_back(current().text);
  auto stmt = dispatch_statement();
  open_tags_.pop_back();
  return stmt;
}

std::unique_ptr<Stmt> Parser::dispatch_statement() {
  static constexpr std::string_view kUnsupported[] = {"block", "extends", "include", "import", "from", "autoescape"};
  const std::string& tag = current().text;
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "generation") return parse_generation();
  if (tag == "print") return parse_print();
  if (tag == "break" || tag == "continue") return parse_loop_control();
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), tag) != std::end(kUnsupported))
    fail(fmt::format("the tag {} is not supported in chat templates", quote(tag)));
  const uint32_t pos = current().pos;
  open_tags_.pop_back();
  fail_tag(&tag, pos);
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto stmt = std::make_unique<Stmt>(StmtType::branch, current().pos);
  const Restore restore(soft_, true);
  while (true) {
    advance();  // if or elif
    Branch branch;
    branch.test = parse_tuple(false);
    branch.body = parse_body({"elif", "else", "endif"});
    stmt->branches.push_back(std::move(branch));
    if (is_name("elif")) continue;
    if (advance().text == "else") stmt->else_body = parse_body({"endif"});
    return stmt;
  }
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto stmt = std::make_unique<Stmt>(StmtType::loop, advance().pos);
  {
    const Restore no_loop_target(in_loop_, true);
    stmt->target = parse_target(false, "in");
  }
  expect_name("in");
  stmt->expr = parse_tuple(false, "recursive");
  const Restore restore(soft_, false);
  if (skip_name("if")) stmt->test = parse_expression();
  stmt->recursive = skip_name("recursive");
  {
    const Restore in_loop(in_loop_, true);
    stmt->body = parse_body({"endfor", "else"});
  }
  if (advance().text == "else") stmt->else_body = parse_body({"endfor"});
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  const uint32_t pos = advance().pos;
  auto stmt = std::make_unique<Stmt>(StmtType::assign, pos);
  stmt->target = parse_target(true, "");
  if (skip_op("=")) {
    stmt->expr = parse_tuple();
    return stmt;
  }
  stmt->type = StmtType::assign_block;
  while (skip_op("|")) stmt->expr = parse_filter(std::move(stmt->expr));
  const Restore restore(soft_, false);
  stmt->body = parse_body({"endset"});
  return stmt;
}

// The parameters of a macro or call block, in parentheses.
void Parser::parse_signature(Stmt& stmt) {
  expect_op("(");
  while (!is_op(")")) {
    if (!stmt.params.empty()) expect_op(",");
    Param param;
    const uint32_t pos = current().pos;
    param.name = expect_any_name();
    for (const Param& other : stmt.params)
      if (other.name == param.name) fail_at(pos, fmt::format("duplicate argument {}", quote(param.name)));
    if (skip_op("=")) {
      param.value = parse_expression();
    } else if (!stmt.params.empty() && stmt.params.back().value) {
      fail("non-default argument follows default argument");
    }
    stmt.params.push_back(std::move(param));
  }
  expect_op(")");
}

void Parser::parse_macro_body(Stmt& stmt, std::string_view end) {
  const Restore soft(soft_, false);
  const Restore in_loop(in_loop_, false);
  macros_.push_back(MacroUse{&stmt});
  stmt.body = parse_body({end});
  macros_.pop_back();
  for (const Param& param : stmt.params) {
    if (param.name == "caller" && stmt.uses_caller && !param.value) {
      fail_at(stmt.pos,
              "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
              "default.");
    }
    if (param.name == "kwargs") stmt.uses_kwargs = false;
    if (param.name == "varargs") stmt.uses_varargs = false;
  }
}

void Parser::note_load(std::string_view name) {
  for (MacroUse& use : macros_) {
    if (name == "caller" && !use.hidden_caller) use.macro->uses_caller = true;
    if (name == "kwargs" && !use.hidden_kwargs) use.macro->uses_kwargs = true;
    if (name == "varargs" && !use.hidden_varargs) use.macro->uses_varargs = true;
  }
}

void Parser::note_store(std::string_view name) {
  for (MacroUse& use : macros_) {
    if (name == "caller") use.hidden_caller = true;
    if (name == "kwargs") use.hidden_kwargs = true;
    if (name == "varargs") use.hidden_varargs = true;
  }
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto stmt = std::make_unique<Stmt>(StmtType::macro, advance().pos);
  stmt->text = expect_any_name();
  parse_signature(*stmt);
  parse_macro_body(*stmt, "endmacro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto stmt = std::make_unique<Stmt>(StmtType::call_block, advance().pos);
  if (is_op("(")) parse_signature(*stmt);
  stmt->expr = parse_expression();
  if (stmt->expr->type != ExprType::call) fail_at(stmt->pos, "expected call");
  parse_macro_body(*stmt, "endcall");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto stmt = std::make_unique<Stmt>(StmtType::filter_block, advance().pos);
  const Restore restore(soft_, false);
  stmt->expr = parse_filter(nullptr);
  while (skip_op("|")) stmt->expr = parse_filter(std::move(stmt->expr));
  stmt->body = parse_body({"endfilter"});
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto stmt = std::make_unique<Stmt>(StmtType::with, advance().pos);
  while (current().type != TokenType::block_end) {
    if (!stmt->bindings.empty()) expect_op(",");
    Target target = parse_target(false, "");
    expect_op("=");
    ExprPtr value = parse_expression();
    stmt->bindings.emplace_back(std::move(target), std::move(value));
  }
  const Restore restore(soft_, false);
  stmt->body = parse_body({"endwith"});
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_generation() {
  auto stmt = std::make_unique<Stmt>(StmtType::generation, advance().pos);
  parse_macro_body(*stmt, "endgeneration");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_print() {
  // {% print a, b %} writes one after the other.
  auto stmt = std::make_unique<Stmt>(StmtType::output, advance().pos);
  stmt->expr = make(ExprType::concat, stmt->pos);
  while (current().type != TokenType::block_end) {
    if (!stmt->expr->items.empty()) expect_op(",");
    stmt->expr->items.push_back(parse_expression());
  }
  stmt->expr = finish(std::move(stmt->expr));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_loop_control() {
  const Token& token = advance();
  if (!in_loop_) fail_at(token.pos, fmt::format("{} outside loop", quote(token.text)));
  return std::make_unique<Stmt>(token.text == "break" ? StmtType::break_loop : StmtType::continue_loop, token.pos);
}

// A name, a namespace attribute, or several of them with commas between; ends before the name `end_name`.
Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  Target target;
  target.pos = current().pos;
  while (true) {
    if (!target.parts.empty()) expect_op(",");
    const bool end = current().type == TokenType::variable_end || current().type == TokenType::block_end ||
                     is_op(")") || (!end_name.empty() && is_name(end_name));
    if (end) break;
    target.parts.push_back(parse_target_part(with_namespace));
    if (!is_op(",")) break;
    target.is_tuple = true;
  }
  if (target.is_tuple) return target;
  if (target.parts.empty()) fail_expected("");
  return std::move(target.parts[0]);
}

Target Parser::parse_target_part(bool with_namespace) {
  const Nested nested(*this);
  if (skip_op("(")) {
    Target inner = parse_target(with_namespace, "");
    expect_op(")");
    return inner;
  }
  Target target;
  target.pos = current().pos;
  if (current().type != TokenType::name) {
    const bool constant = current().type == TokenType::string || current().type == TokenType::integer ||
                          current().type == TokenType::real;
    fail(fmt::format("can't assign to {}", constant ? "'const'" : quote(describe(current()))));
  }
  target.name = advance().text;
  for (std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (target.name == constant) fail_at(target.pos, "can't assign to 'const'");
  if (with_namespace && skip_op(".")) {
    target.attribute = expect_any_name();
    note_load(target.name);
  } else {
    if (target.name == "loop" && in_loop_)
      fail_at(target.pos, "Can't assign to special loop variable in for-loop target");
    note_store(target.name);
  }
  return target;
}

}  // namespace ingot::jinja
