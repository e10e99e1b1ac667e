#include <algorithm>
#include <iterator>

#include "text/jinja/parser.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

std::string describe(TokenType type, const std::string& text) {
  switch (type) {
    case TokenType::data: return "template data / text";
    case TokenType::block_begin: return "begin of statement block";
    case TokenType::block_end: return "end of statement block";
    case TokenType::variable_begin: return "begin of print statement";
    case TokenType::variable_end: return "end of print statement";
    case TokenType::name:
    case TokenType::op: return text;
    case TokenType::string: return "string";
    case TokenType::integer: return "integer";
    case TokenType::real: return "float";
    case TokenType::eof: return "end of template";
  }
  return "";
}

template <typename Body>
Stmt statement(uint32_t pos, Body body) {
  return [pos, body = std::move(body)](Run& run, const ScopePtr& scope) {
    const Run::Level level(run, pos);
    return body(run, scope);
  };
}

// A statement that always goes on with the next one.
template <typename Body>
Stmt plain(uint32_t pos, Body body) {
  return statement(pos, [body = std::move(body)](Run& run, const ScopePtr& scope) {
    body(run, scope);
    return Flow::normal;
  });
}

ScopePtr inside(const ScopePtr& parent) { return std::make_shared<Scope>(parent); }

}  // namespace

Flow execute(const Block& body, Run& run, const ScopePtr& scope) {
  for (const Stmt& stmt : body) {
    const Flow flow = stmt(run, scope);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Parser::Parser(const std::string& source) : source_(source), tokens_(tokenize(source)) {}

Block Parser::parse() { return parse_until({}); }

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
  if (current().type != type) fail_expected(describe(type, ""));
  advance();
}

void Parser::fail_expected(std::string_view what) const {
  const std::string got = describe(current().type, current().text);
  if (what.empty()) fail(fmt::format("Expected an expression, got {}", quote(got)));
  if (what == "an expression") fail(fmt::format("unexpected {}", quote(got)));
  if (current().type == TokenType::eof) fail(fmt::format("unexpected end of template, expected {}.", quote(what)));
  fail(fmt::format("expected token {}, got {}", quote(what), quote(got)));
}

// `ends` are the tags that could stand here.
void Parser::fail_tag(std::string message, const std::vector<std::string_view>& ends) const {
  for (std::string_view end : ends)
    message += (end == ends[0] ? " Jinja was looking for the following tags: " : " or ") + quote(end);
  if (!ends.empty()) message += '.';
  if (!open_tags_.empty())
    message += fmt::format(" The innermost block that needs to be closed is {}.", quote(open_tags_.back()));
  fail(message);
}

// Statements up to one of the tags in `ends`, which becomes the current token, or the end of the template when there
// are none.
Block Parser::parse_until(const std::vector<std::string_view>& ends) {
  const Nested nested(*this, 1);
  Block body;
  while (current().type != TokenType::eof) {
    const uint32_t pos = current().pos;
    if (current().type == TokenType::data) {
      body.push_back(plain(pos, [text = advance().text](Run& run, const ScopePtr&) { run.write(text); }));
    } else if (current().type == TokenType::variable_begin) {
      advance();
      body.push_back(plain(pos, [value = parse_tuple()](Run& run, const ScopePtr& scope) {
        run.write(run.text_of(value(run, scope)));
      }));
      expect(TokenType::variable_end);
    } else {
      expect(TokenType::block_begin);
      if (current().type != TokenType::name) fail("tag name expected");
      if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return body;
      body.push_back(parse_statement(ends));
      expect(TokenType::block_end);
    }
  }
  if (!ends.empty()) fail_tag("Unexpected end of template.", ends);
  return body;
}

// The body of a tag, from the end of its opening tag on; the tag that ended it is the current token.
Block Parser::parse_body(const std::vector<std::string_view>& ends) {
  skip_op(":");
  expect(TokenType::block_end);
  return parse_until(ends);
}

Stmt Parser::parse_statement(const std::vector<std::string_view>& ends) {
  static constexpr std::pair<std::string_view, Stmt (Parser::*)()> kTags[] = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"generation", &Parser::parse_generation},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
  };
  static constexpr std::string_view kUnsupported[] = {"autoescape", "block",  "debug",   "do",    "extends",
                                                      "from",       "import", "include", "print", "trans"};
  const std::string tag = current().text;
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), tag) != std::end(kUnsupported))
    fail(fmt::format("the tag {} is not supported in chat templates", quote(tag)));
  for (const auto& [name, parse] : kTags) {
    if (name != tag) continue;
    open_tags_.push_back(tag);
    Stmt stmt = (this->*parse)();
    open_tags_.pop_back();
    return stmt;
  }
  fail_tag(fmt::format("Encountered unknown tag {}.", quote(tag)), ends);
}

Stmt Parser::parse_if() {
  const uint32_t pos = current().pos;
  std::vector<std::pair<Expr, Block>> branches;
  do {
    advance();  // if or elif
    Expr test = parse_tuple(false);
    branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
  } while (is_name("elif"));
  Block otherwise;
  if (advance().text == "else") {
    otherwise = parse_body({"endif"});
    advance();
  }
  return statement(pos,
                   [branches = std::move(branches), otherwise = std::move(otherwise)](Run& run, const ScopePtr& scope) {
                     for (const auto& [test, body] : branches)
                       if (test(run, scope).truthy()) return execute(body, run, scope);
                     return execute(otherwise, run, scope);
                   });
}

Stmt Parser::parse_for() {
  const uint32_t pos = advance().pos;
  const bool outer_loop = std::exchange(in_loop_, true);
  Target target = parse_target(false, "in");
  expect_name("in");
  Expr iterable = parse_tuple(false, "recursive");
  Expr test = skip_name("if") ? parse_expression() : Expr();
  if (is_name("recursive")) fail("recursive loops are not supported");
  Block body = parse_body({"endfor", "else"});
  in_loop_ = outer_loop;
  Block otherwise;
  if (advance().text == "else") {
    otherwise = parse_body({"endfor"});
    advance();
  }
  return statement(pos, [target = std::move(target), iterable = std::move(iterable), test = std::move(test),
                         body = std::move(body), otherwise = std::move(otherwise)](Run& run, const ScopePtr& scope) {
    const Value values = iterable(run, scope);
    Loop::Next next = [items = Iter(values)](Value& item) mutable { return items.next(item); };
    if (test) {
      next = [&run, &target, &test, scope, next = std::move(next)](Value& item) {
        while (next(item)) {
          const ScopePtr inner = inside(scope);
          assign(target, item, inner);
          if (test(run, inner).truthy()) return true;
        }
        return false;
      };
    }
    const auto loop = std::make_shared<Loop>(std::move(next), test ? std::nullopt : length_of(values));
    bool completed = false;  // as in jinja2, an iteration that is left by break or continue does not count
    for (Value item; loop->advance(item);) {
      run.spend(1);
      const ScopePtr inner = inside(scope);
      inner->set("loop", Value(std::shared_ptr<Object>(loop)));
      assign(target, item, inner);
      const Flow flow = execute(body, run, inner);
      if (flow == Flow::break_loop) break;
      completed = completed || flow == Flow::normal;
    }
    if (loop.use_count() > 1) run.keep(loop);  // the template holds on to it, maybe in a cycle
    return completed ? Flow::normal : execute(otherwise, run, inside(scope));
  });
}

Stmt Parser::parse_set() {
  const uint32_t pos = advance().pos;
  Target target = parse_target(true, "");
  if (skip_op("=")) {
    Expr value = parse_tuple();
    return plain(pos, [target = std::move(target), value = std::move(value)](Run& run, const ScopePtr& scope) {
      assign(target, value(run, scope), scope);
    });
  }
  FilterChain filters = skip_op("|") ? parse_filters() : FilterChain();
  Block body = parse_body({"endset"});
  advance();
  return statement(pos, [target = std::move(target), filters = std::move(filters), body = std::move(body)](
                            Run& run, const ScopePtr& scope) {
    const ScopePtr inner = inside(scope);
    Flow flow = Flow::normal;
    Value value(run.capture([&] { flow = execute(body, run, inner); }));
    if (flow != Flow::normal) return flow;
    if (filters) value = filters(run, inner, std::move(value));
    assign(target, value, scope);
    return flow;
  });
}

// The parameters of a macro or call block, in parentheses.
void Parser::parse_signature(Macro& macro) {
  expect_op("(");
  while (!is_op(")")) {
    if (!macro.params.empty()) expect_op(",");
    Param param;
    for (const Param& other : macro.params)
      if (other.name == current().text) fail(fmt::format("duplicate argument {}", quote(other.name)));
    param.name = expect_any_name();
    if (skip_op("=")) {
      param.value = parse_expression();
    } else if (!macro.params.empty() && macro.params.back().value) {
      fail("non-default argument follows default argument");
    }
    macro.params.push_back(std::move(param));
  }
  expect_op(")");
}

void Parser::parse_macro_body(Macro& macro, std::string_view end) {
  const bool outer_loop = std::exchange(in_loop_, false);
  macro.body = parse_body({end});
  advance();
  in_loop_ = outer_loop;
}

Value Parser::call_macro(const Macro& macro, const ScopePtr& outer, Run& run, Args& args) {
  const Run::Level level(run, run.pos);
  const ScopePtr scope = inside(outer);
  const std::string name = macro.name.empty() ? "None" : quote(macro.name);
  std::vector<const Param*> missing;
  for (size_t i = 0; i < macro.params.size(); ++i) {
    const Param& param = macro.params[i];
    const std::optional<Value> value =
        i < args.positional.size() ? std::optional<Value>(args.positional[i]) : args.take_keyword(param.name);
    scope->set(param.name, value ? *value : Value::missing(param.name));
    if (!value) missing.push_back(&param);
  }
  if (auto caller = args.take_keyword("caller")) scope->set("caller", *caller);
  if (!args.keywords.empty()) raise("macro {} takes no keyword argument {}", name, quote(args.keywords[0].first));
  if (args.positional.size() > macro.params.size())
    raise("macro {} takes not more than {} argument(s)", name, macro.params.size());
  for (const Param* param : missing)
    scope->set(param->name, param->value
                                ? param->value(run, scope)
                                : Value::undefined(fmt::format("parameter {} was not provided", quote(param->name))));
  return Value(run.capture([&] { execute(macro.body, run, scope); }));
}

Stmt Parser::parse_macro() {
  const uint32_t pos = advance().pos;
  auto macro = std::make_shared<Macro>();
  macro->name = expect_any_name();
  parse_signature(*macro);
  parse_macro_body(*macro, "endmacro");
  return plain(pos, [macro](Run& run, const ScopePtr& scope) {
    auto function = std::make_shared<Function>(
        [macro, scope](Run& inner, Args& args) { return call_macro(*macro, scope, inner, args); });
    run.keep(function);
    scope->set(macro->name, Value(std::shared_ptr<Object>(std::move(function))));
  });
}

Stmt Parser::parse_call_block() {
  const uint32_t pos = advance().pos;
  auto macro = std::make_shared<Macro>();
  if (is_op("(")) parse_signature(*macro);
  const uint32_t call_pos = current().pos;
  Expr callee = parse_primary();
  while (skip_op(".")) callee = parse_attribute(std::move(callee), call_pos);
  CallArgs call_args = parse_arguments();
  parse_macro_body(*macro, "endcall");
  return plain(pos,
               [macro, callee = std::move(callee), call_args = std::move(call_args)](Run& run, const ScopePtr& scope) {
                 auto caller = std::make_shared<Function>(
                     [macro, scope](Run& inner, Args& args) { return call_macro(*macro, scope, inner, args); });
                 run.keep(caller);
                 const Value function = callee(run, scope);
                 Args args = evaluate(call_args, run, scope);
                 args.keywords.emplace_back("caller", Value(std::shared_ptr<Object>(std::move(caller))));
                 run.write(run.text_of(run.call(function, std::move(args))));
               });
}

Stmt Parser::parse_filter_block() {
  const uint32_t pos = advance().pos;
  FilterChain filters = parse_filters();
  Block body = parse_body({"endfilter"});
  advance();
  return statement(pos, [filters = std::move(filters), body = std::move(body)](Run& run, const ScopePtr& scope) {
    const ScopePtr inner = inside(scope);
    Flow flow = Flow::normal;
    Value value(run.capture([&] { flow = execute(body, run, inner); }));
    if (flow == Flow::normal) run.write(run.text_of(filters(run, inner, std::move(value))));
    return flow;
  });
}

Stmt Parser::parse_with() {
  const uint32_t pos = advance().pos;
  std::vector<std::pair<Target, Expr>> bindings;
  while (current().type != TokenType::block_end) {
    if (!bindings.empty()) expect_op(",");
    Target target = parse_target(false, "");
    expect_op("=");
    bindings.emplace_back(std::move(target), parse_expression());
  }
  Block body = parse_body({"endwith"});
  advance();
  return statement(pos, [bindings = std::move(bindings), body = std::move(body)](Run& run, const ScopePtr& scope) {
    const ScopePtr inner = inside(scope);
    for (const auto& [target, value] : bindings) assign(target, value(run, scope), inner);
    return execute(body, run, inner);
  });
}

// What the model is trained to say: a scope of its own, as it is a call block to jinja2.
Stmt Parser::parse_generation() {
  const uint32_t pos = advance().pos;
  Macro macro;
  parse_macro_body(macro, "endgeneration");
  return plain(pos,
               [body = std::move(macro.body)](Run& run, const ScopePtr& scope) { execute(body, run, inside(scope)); });
}

Stmt Parser::parse_loop_control() {
  if (!in_loop_) fail(fmt::format("{} outside loop", quote(current().text)));
  const Flow flow = is_name("break") ? Flow::break_loop : Flow::continue_loop;
  return statement(advance().pos, [flow](Run&, const ScopePtr&) { return flow; });
}

// A name, a namespace attribute, or several of them with commas between; ends before the name `end_name`.
Parser::Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  Target target;
  while (true) {
    if (!target.parts.empty()) expect_op(",");
    const bool end = current().type == TokenType::block_end || is_op(")") || (!end_name.empty() && is_name(end_name));
    if (end) break;
    target.parts.push_back(parse_target_part(with_namespace));
    if (!is_op(",")) break;
    target.is_tuple = true;
  }
  if (target.is_tuple) return target;
  if (target.parts.empty()) fail_expected("");
  return std::move(target.parts[0]);
}

Parser::Target Parser::parse_target_part(bool with_namespace) {
  const Nested nested(*this, 1);
  if (skip_op("(")) {
    Target inner = parse_target(with_namespace, "");
    expect_op(")");
    return inner;
  }
  for (std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (is_name(constant)) fail("can't assign to 'const'");
  if (is_name("loop") && in_loop_) fail("Can't assign to special loop variable in for-loop target");
  Target target;
  target.name = expect_any_name();
  if (with_namespace && skip_op(".")) target.attribute = expect_any_name();
  return target;
}

Value Parser::lookup(const std::string& name, const ScopePtr& scope) {
  if (const Value* v = scope->find(name)) return *v;
  if (auto v = find_global(name)) return *v;
  return Value::missing(name);
}

void Parser::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.attribute.empty()) {
    const Value object = lookup(target.name, scope);
    auto* name_space = dynamic_cast<Namespace*>(object.object());
    if (name_space == nullptr) raise("cannot assign attribute on non-namespace object");
    name_space->set(target.attribute, value);
  } else if (!target.is_tuple) {
    scope->set(target.name, value);
  } else {
    if (!Iter::can(value)) raise("cannot unpack non-iterable {} object", type_name(value));
    const std::vector<Value> values = to_vector(value);
    const size_t wanted = target.parts.size();
    if (values.size() > wanted) raise("too many values to unpack (expected {})", wanted);
    if (values.size() < wanted) raise("not enough values to unpack (expected {}, got {})", wanted, values.size());
    for (size_t i = 0; i < wanted; ++i) assign(target.parts[i], values[i], scope);
  }
}

}  // namespace ingot::jinja
