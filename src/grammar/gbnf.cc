#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "core/printable.h"
#include "core/utf8.h"

namespace ingot::grammar {
namespace {

constexpr int kMaxGbnfNesting = 200;
constexpr uint32_t kMaxGbnfCount = 100'000;
constexpr uint32_t kMaxRuleCopies = 2'000;  // of a part that calls itself

struct GbnfNode {
  enum class Kind { expr, call, sequence, choice, repeat };
  Kind kind;
  ExprId expr = 0;
  size_t rule = 0;
  std::vector<size_t> parts = {};
  uint32_t least = 0, most = 0;
};

struct GbnfRule {
  std::string name;
  std::optional<size_t> body;
  size_t line = 0;             // where it is first named
  std::optional<ExprId> expr;  // when it does not call itself, however far round
  RuleId rule = 0;
};

class GbnfParser {
 public:
  GbnfParser(Program& program, std::string_view source) : program_(program), text_(source) {
    program.budget.check(source.size(), program.budget.limits().max_source_bytes, "bytes of source");
    if (!is_valid_utf8(source)) fail("is not valid UTF-8");
    skip_space(true);
    while (at_ < text_.size()) rule();
    for (const GbnfRule& rule : rules)
      if (!rule.body)
        throw_bad_parameter("grammar", "line {}: the rule {} is not defined", rule.line, printable(rule.name));
  }

  size_t root() {
    const auto found = names_.find("root");
    if (found == names_.end()) throw_bad_parameter("grammar", "has no rule named root");
    return found->second;
  }

  std::vector<GbnfRule> rules;
  std::vector<GbnfNode> nodes;

 private:
  using Kind = GbnfNode::Kind;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    const auto end = text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size()));
    throw_bad_parameter("grammar", "line {}: {}", 1 + std::count(text_.begin(), end, '\n'),
                        fmt::format(format, std::forward<Args>(args)...));
  }
  bool more() const { return at_ < text_.size(); }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_space(bool lines) {
    while (more()) {
      const char c = text_[at_];
      if (c == '#') {
        while (more() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  static bool is_name(char c) { return is_alpha(c) || is_digit(c) || c == '-' || c == '_'; }
  std::string_view name() {
    const size_t start = at_;
    while (more() && is_name(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }
  size_t rule_named(std::string_view name) {
    const auto [found, fresh] = names_.try_emplace(std::string(name), rules.size());
    if (fresh) {
      const auto end = text_.begin() + static_cast<ptrdiff_t>(at_);
      rules.push_back({.name = std::string(name),
                       .body = {},
                       .line = static_cast<size_t>(1 + std::count(text_.begin(), end, '\n')),
                       .expr = {}});
    }
    return found->second;
  }
  size_t add(GbnfNode node) {
    program_.budget.spend(sizeof(GbnfNode));
    nodes.push_back(std::move(node));
    return nodes.size() - 1;
  }

  void rule() {
    const std::string_view title = name();
    if (title.empty()) fail("expected the name of a rule");
    const size_t index = rule_named(title);
    skip_space(false);
    if (!take("::=")) fail("expected ::= after {}", printable(title));
    if (rules[index].body) fail("the rule {} is defined twice", printable(title));
    skip_space(true);
    const size_t body = choice(0);
    rules[index].body = body;
    skip_space(false);
    if (more() && text_[at_] != '\n' && text_[at_] != '\r') fail("expected the end of the line");
    skip_space(true);
  }

  // `depth` is the number of open parentheses: within them lines may end anywhere.
  size_t choice(int depth) {
    if (depth > kMaxGbnfNesting) fail("is nested deeper than {} levels", kMaxGbnfNesting);
    std::vector<size_t> branches{sequence(depth)};
    while (take("|")) {
      skip_space(true);
      branches.push_back(sequence(depth));
    }
    return branches.size() == 1 ? branches[0] : add({.kind = Kind::choice, .parts = std::move(branches)});
  }

  size_t sequence(int depth) {
    std::vector<size_t> parts;
    for (;; skip_space(depth > 0)) {
      std::optional<size_t> part = element(depth);
      if (!part) break;
      part = repeated(*part);
      parts.push_back(*part);
    }
    // A choice may go on at the next line.
    const size_t here = at_;
    skip_space(true);
    if (!more() || text_[at_] != '|') at_ = here;
    return parts.size() == 1 ? parts[0] : add({.kind = Kind::sequence, .parts = std::move(parts)});
  }

  std::optional<size_t> element(int depth) {
    if (!more()) return std::nullopt;
    if (take("\"")) return add({.kind = Kind::expr, .expr = literal()});
    if (take("[")) return add({.kind = Kind::expr, .expr = program_.text.chars(char_class())});
    if (take(".")) return add({.kind = Kind::expr, .expr = program_.text.any()});
    if (take("(")) {
      skip_space(true);
      const size_t inner = choice(depth + 1);
      skip_space(true);
      if (!take(")")) fail("expected )");
      return inner;
    }
    if (text_[at_] == '<') return special();
    if (!is_name(text_[at_])) return std::nullopt;
    return add({.kind = Kind::call, .rule = rule_named(name())});
  }

  size_t special() {
    const size_t end = text_.find('>', at_);
    if (end == text_.npos) fail("a special token has no end");
    const std::string text(text_.substr(at_, end + 1 - at_));
    if (std::ranges::find(program_.vocabulary.special_texts(), text) == program_.vocabulary.special_texts().end())
      fail("{} is no special token of this model", printable(text));
    at_ = end + 1;
    return add({.kind = Kind::expr, .expr = program_.pool.literal(static_cast<char>(kSpecialMark) + text)});
  }

  std::optional<uint32_t> count() {
    const size_t start = at_;
    uint32_t value = 0;
    while (more() && is_digit(text_[at_])) {
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
      if (value > kMaxGbnfCount) fail("repeats more than {} times", kMaxGbnfCount);
    }
    return start == at_ ? std::nullopt : std::optional(value);
  }

  size_t repeated(size_t part) {
    for (;;) {
      uint32_t least = 0, most = ExprPool::kUnbounded;
      if (take("*")) {
      } else if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (take("{")) {
        skip_space(false);
        const auto low = count();
        if (!low) fail("expected a number after {{");
        least = most = *low;
        skip_space(false);
        if (take(",")) {
          skip_space(false);
          most = count().value_or(ExprPool::kUnbounded);
          skip_space(false);
        }
        if (!take("}")) fail("expected }}");
        if (least > most) fail("the bounds of a repetition are the wrong way round");
      } else {
        return part;
      }
      part = add({.kind = Kind::repeat, .parts = {part}, .least = least, .most = most});
    }
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = more() ? static_cast<char>(text_[at_] | 0x20) : '\0';
      if (!is_digit(c) && (c < 'a' || c > 'f')) fail("an escape needs {} hexadecimal digits", digits);
      value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
      ++at_;
    }
    return value;
  }
  char32_t one_char() {
    if (!take("\\")) {
      const Utf8Char c = decode_valid_utf8(text_.data() + at_);
      at_ += c.length;
      return c.code;
    }
    if (!more()) fail("ends with a backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<char32_t>(c);
      default: fail("\\{} is no escape of GBNF", printable({&c, 1}));
    }
  }
  ExprId literal() {
    std::string text;
    while (!take("\"")) {
      if (!more()) fail("a literal has no end");
      const char32_t code = one_char();
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("an escape is no character");
      append_utf8(text, code);
    }
    return program_.pool.literal(text);
  }
  CharSet char_class() {
    CharSet set;
    const bool negative = take("^");
    while (!take("]")) {
      if (!more()) fail("a [ has no ]");
      const char32_t first = one_char();
      char32_t last = first;
      if (text_.substr(at_).starts_with("-") && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        if (!more()) fail("a [ has no ]");
        last = one_char();
      }
      if (last < first || last > 0x10FFFF) fail("a range is the wrong way round");
      set.add(first, last);
    }
    return negative ? set.complement() : set;
  }

  Program& program_;
  std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, size_t, std::less<>> names_;
};

class GbnfCompiler {
 public:
  GbnfCompiler(Program& program, GbnfParser& source) : program_(program), rules_(source.rules), nodes_(source.nodes) {}

  RuleId compile(size_t root) {
    find_endless();
    make_exprs();
    for (GbnfRule& rule : rules_)
      if (!rule.expr || &rule == &rules_[root]) rule.rule = program_.rules.add_rule();
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].expr && i != root) continue;
      const RuleId rule = rules_[i].rule;
      const StateId begin = program_.rules.add_state(rule), end = program_.rules.add_state(rule, true);
      program_.rules.set_start(rule, begin);
      lower(*rules_[i].body, rule, begin, end);
    }
    return rules_[root].rule;
  }

 private:
  using Kind = GbnfNode::Kind;

  // Repeats `grow` for every rule until it says "nothing new" of all.
  template <typename Grow>
  void until_stable(Grow grow) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules_.size(); ++i) {
        program_.budget.tick();
        changed = grow(i) || changed;
      }
    }
  }

  // A rule that can never end would let the model write for ever.
  void find_endless() {
    std::vector<uint8_t> ends(rules_.size());
    until_stable([&](size_t i) {
      if (ends[i] != 0 || !may_end(*rules_[i].body, ends)) return false;
      return ends[i] = 1, true;
    });
    for (size_t i = 0; i < rules_.size(); ++i)
      if (ends[i] == 0)
        throw_bad_parameter("grammar", "line {}: the rule {} can never end", rules_[i].line, printable(rules_[i].name));
  }
  bool may_end(size_t index, const std::vector<uint8_t>& ends) const {
    const GbnfNode& node = nodes_[index];
    const auto may = [&](size_t part) { return may_end(part, ends); };
    switch (node.kind) {
      case Kind::expr: return node.expr != ExprPool::kNothing;
      case Kind::call: return ends[node.rule] != 0;
      case Kind::sequence: return std::ranges::all_of(node.parts, may);
      case Kind::choice: return std::ranges::any_of(node.parts, may);
      case Kind::repeat: return node.least == 0 || may(node.parts[0]);
    }
    return false;
  }

  void make_exprs() {
    until_stable([&](size_t i) {
      if (rules_[i].expr) return false;
      rules_[i].expr = expr_of(*rules_[i].body);
      return rules_[i].expr.has_value();
    });
  }
  std::optional<ExprId> expr_of(size_t index) {
    const GbnfNode& node = nodes_[index];
    if (node.kind == Kind::expr) return node.expr;
    if (node.kind == Kind::call) return rules_[node.rule].expr;
    std::vector<ExprId> parts;
    for (const size_t part : node.parts) {
      const auto expr = expr_of(part);
      if (!expr) return std::nullopt;
      parts.push_back(*expr);
    }
    ExprPool& pool = program_.pool;
    if (node.kind == Kind::choice) return pool.either(std::move(parts));
    if (node.kind == Kind::repeat) return pool.repeat(parts[0], node.least, node.most);
    ExprId expr = ExprPool::kEmpty;
    for (size_t i = parts.size(); i-- > 0;) expr = pool.concat(parts[i], expr);
    return expr;
  }

  void lower(size_t index, RuleId rule, StateId from, StateId to) {
    Rules& rules = program_.rules;
    if (const auto expr = expr_of(index)) return program_.add_expr(from, *expr, to);
    const GbnfNode& node = nodes_[index];
    switch (node.kind) {
      case Kind::expr: return;
      case Kind::call: return rules.add_call(from, rules_[node.rule].rule, to);
      case Kind::choice:
        for (const size_t part : node.parts) lower(part, rule, from, to);
        return;
      case Kind::sequence:
        for (size_t i = 0; i < node.parts.size(); ++i) {
          const StateId next = i + 1 == node.parts.size() ? to : rules.add_state(rule);
          lower(node.parts[i], rule, from, next);
          from = next;
        }
        return;
      case Kind::repeat: {
        const bool endless = node.most == ExprPool::kUnbounded;
        const uint32_t copies = endless ? node.least : node.most;
        if (copies > kMaxRuleCopies)
          throw_bad_parameter("grammar", "repeats a rule that calls itself more than {} times", kMaxRuleCopies);
        for (uint32_t i = 0; i < copies; ++i) {
          if (i >= node.least) rules.add_skip(from, to);
          const StateId next = rules.add_state(rule);
          lower(node.parts[0], rule, from, next);
          from = next;
        }
        if (endless) {
          const StateId loop = rules.add_state(rule);
          rules.add_skip(from, loop);
          lower(node.parts[0], rule, loop, loop);
          from = loop;
        }
        return rules.add_skip(from, to);
      }
    }
  }

  Program& program_;
  std::vector<GbnfRule>& rules_;
  std::vector<GbnfNode>& nodes_;
};

}  // namespace

RuleId compile_gbnf(Program& program, std::string_view source) {
  GbnfParser parser(program, source);
  const size_t root = parser.root();
  return GbnfCompiler(program, parser).compile(root);
}

}  // namespace ingot::grammar
