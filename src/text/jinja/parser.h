#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace ingot::jinja {

// Turns the tokens of a template into statements. Throws ingot::Error (bad_file) for what is not valid, or valid jinja2
// but not supported here.
class Parser {
 public:
  explicit Parser(const std::string& source);  // normalized; must outlive the parser
  Block parse();

 private:
  // Which of the special names the body of a macro uses.
  struct MacroUse {
    Stmt* macro;
    bool hidden_caller = false, hidden_kwargs = false, hidden_varargs = false;  // assigned before use
  };

  // Restores a flag when a construct ends.
  class Restore {
   public:
    Restore(bool& flag, bool value) : flag_(flag), old_(flag) { flag = value; }
    ~Restore() { flag_ = old_; }
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;

   private:
    bool& flag_;
    bool old_;
  };

  class Nested;

  const Token& current() const { return tokens_[index_]; }
  const Token& look() const { return tokens_[std::min(index_ + 1, tokens_.size() - 1)]; }
  const Token& advance();
  bool is_op(std::string_view op) const { return current().type == TokenType::op && current().text == op; }
  bool is_name(std::string_view name) const { return current().type == TokenType::name && current().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  void expect(TokenType type);
  [[noreturn]] void fail(std::string_view message) const { fail_at(current().pos, message); }
  [[noreturn]] void fail_at(uint32_t pos, std::string_view message) const;
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[noreturn]] void fail_tag(const std::string* name, uint32_t pos) const;

  // parse_statements.cc
  Block parse_until(const std::vector<std::string_view>& ends, bool skip_end);
  Block parse_body(const std::vector<std::string_view>& ends);
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> dispatch_statement();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_generation();
  std::unique_ptr<Stmt> parse_print();
  std::unique_ptr<Stmt> parse_loop_control();
  void parse_signature(Stmt& stmt);
  void parse_macro_body(Stmt& stmt, std::string_view end);
  Target parse_target(bool with_namespace, std::string_view end_name);
  Target parse_target_part(bool with_namespace);
  void note_load(std::string_view name);
  void note_store(std::string_view name);

  // parse_expressions.cc
  ExprPtr make(ExprType type, uint32_t pos) const { return std::make_unique<Expr>(type, pos); }
  ExprPtr finish(ExprPtr e) const;  // fills in the depth
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_tuple(bool with_condition = true, std::string_view end_name = "", bool parenthesized = false);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_string();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr e);
  ExprPtr parse_filter_chain(ExprPtr e);
  ExprPtr parse_subscript(ExprPtr e);
  ExprPtr parse_bracket(ExprPtr e, uint32_t pos);
  ExprPtr parse_call(ExprPtr e);
  ExprPtr parse_filter(ExprPtr e);
  ExprPtr parse_test(ExprPtr e);
  CallArgs parse_arguments();
  std::string parse_dotted_name();
  void note_unknown(const Expr& e, std::string_view kind);

  const std::string& source_;
  std::vector<Token> tokens_;
  size_t index_ = 0;
  int nesting_ = 0;
  bool soft_ = false;     // inside if or a conditional expression, where an unknown filter only fails when reached
  bool in_loop_ = false;  // break and continue are allowed
  std::vector<MacroUse> macros_;
  std::vector<std::string> open_tags_;
  std::vector<std::vector<std::string_view>> end_tags_;
  // Filters and tests that do not exist: position and message. They are errors unless they turn out to be part of a
  // conditional expression.
  std::vector<std::pair<uint32_t, std::string>> unknown_;
};

// Counts the nesting of what is being parsed, which bounds the recursion of parser and interpreter.
class Parser::Nested {
 public:
  explicit Nested(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting) {
      --parser_.nesting_;
      parser_.fail("nested too deep");
    }
  }
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace ingot::jinja
