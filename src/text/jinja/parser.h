#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/run.h"

namespace ingot::jinja {

enum class Flow { normal, break_loop, continue_loop };

// An expression and a statement, compiled: what to do to evaluate and to execute them.
using Expr = std::function<Value(Run& run, const ScopePtr& scope)>;
using Stmt = std::function<Flow(Run& run, const ScopePtr& scope)>;
using Block = std::vector<Stmt>;

Flow execute(const Block& body, Run& run, const ScopePtr& scope);

// Turns the tokens of a template into statements. Throws ingot::Error (bad_file) for what is not valid, or valid jinja2
// but not supported here.
class Parser {
 public:
  explicit Parser(const std::string& source);  // normalized; must outlive what is parsed
  Block parse();

 private:
  // The arguments of a call, filter or test as written.
  struct CallArgs {
    std::vector<Expr> positional;
    std::vector<std::pair<std::string, Expr>> keywords;
    Expr star;         // *args
    Expr double_star;  // **kwargs
  };
  // What a value is assigned to: a name, an attribute of a namespace, or a tuple of targets.
  struct Target {
    std::string name;
    std::string attribute;      // of the namespace `name`
    std::vector<Target> parts;  // of a tuple
    bool is_tuple = false;
  };
  struct Param {
    std::string name;
    Expr value;  // default, may be empty
  };
  struct Macro {
    std::string name;  // empty: a call block
    std::vector<Param> params;
    Block body;
  };
  // Takes the value that is filtered from outside.
  using FilterChain = std::function<Value(Run& run, const ScopePtr& scope, Value value)>;

  // Counts the nesting of what is being parsed, which bounds the recursion of the parser and of a run.
  class Nested {
   public:
    // `levels`: 1 where a construct stands inside another, 0 for a chain that becomes deeper link by link.
    Nested(Parser& parser, int levels) : parser_(parser) {
      if (levels > 0) deeper();
    }
    ~Nested() { parser_.nesting_ -= levels_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    void deeper();

   private:
    Parser& parser_;
    int levels_ = 0;
  };

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
  [[noreturn]] void fail(std::string_view message) const { syntax_error(source_, current().pos, message); }
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[noreturn]] void fail_tag(std::string message, const std::vector<std::string_view>& ends) const;

  // statements.cc
  Block parse_until(const std::vector<std::string_view>& ends);
  Block parse_body(const std::vector<std::string_view>& ends);
  Stmt parse_statement(const std::vector<std::string_view>& ends);
  Stmt parse_if();
  Stmt parse_for();
  Stmt parse_set();
  Stmt parse_macro();
  Stmt parse_call_block();
  Stmt parse_filter_block();
  Stmt parse_with();
  Stmt parse_generation();
  Stmt parse_loop_control();
  void parse_signature(Macro& macro);
  void parse_macro_body(Macro& macro, std::string_view end);
  Target parse_target(bool with_namespace, std::string_view end_name);
  Target parse_target_part(bool with_namespace);
  static Value lookup(const std::string& name, const ScopePtr& scope);
  static void assign(const Target& target, const Value& value, const ScopePtr& scope);
  static Value call_macro(const Macro& macro, const ScopePtr& outer, Run& run, Args& args);

  // expressions.cc
  Expr parse_expression(bool with_condition = true);
  Expr parse_tuple(bool with_condition = true, std::string_view end_name = "", bool parenthesized = false);
  Expr parse_condition();
  Expr parse_logical(bool is_or);
  Expr parse_not();
  Expr parse_compare();
  Expr parse_sum();
  Expr parse_concat();
  Expr parse_product();
  Expr parse_unary(bool with_filter = true);
  Expr parse_primary();
  Expr parse_name();
  Expr parse_list();
  Expr parse_dict();
  Expr parse_postfix(Expr e, uint32_t pos);
  Expr parse_attribute(Expr object, uint32_t pos);
  Expr parse_bracket(Expr object, uint32_t pos);
  Expr parse_call(Expr function, uint32_t pos);
  Expr parse_test(Expr value, uint32_t pos);
  FilterChain parse_filter(uint32_t pos);
  FilterChain parse_filters();
  CallArgs parse_arguments();
  static Args evaluate(const CallArgs& call_args, Run& run, const ScopePtr& scope);

  const std::string& source_;
  std::vector<Token> tokens_;
  size_t index_ = 0;
  int nesting_ = 0;
  bool in_loop_ = false;  // break and continue are allowed
  std::vector<std::string> open_tags_;
};

}  // namespace ingot::jinja
