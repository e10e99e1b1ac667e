// From shapes to rules: values and arrays.
#include <algorithm>
#include <map>
#include <tuple>

#include "grammar/schema/compiler.h"

namespace ingot::grammar {
namespace {

// The states of one array: how many items there are, as far as that matters, and how many of them `contains` has met.
class ArrayRules : public std::enable_shared_from_this<ArrayRules> {
 public:
  ArrayRules(SchemaCompiler& compiler, const ArrayShape& shape, RuleId rule, StateId end)
      : compiler_(compiler), shape_(shape), rule_(rule), end_(end), most_(shape.most) {
    for (uint64_t i = 0; i <= shape.prefix.size() && i < most_; ++i)
      if (!compiler.is_satisfiable(shape.at(i))) most_ = i;
    if (!shape.contains.empty()) contains_ = shape.contains[0];
    ExprPool& pool = compiler.pool;
    Lexer& lexer = compiler.program.lexer;
    const ExprId space = compiler.white_space;
    comma_ = lexer.add(pool.concat({space, pool.literal(","), space}));
    close_ = lexer.add(pool.concat(space, pool.literal("]")));
    close_empty_ = lexer.add(pool.literal("]"));
  }

  bool is_possible() { return may_finish({0, 0}); }
  StateId first() { return state(Phase::first, {0, 0}); }

 private:
  enum class Phase { first, item, after };
  struct Progress {
    uint64_t items, matched;
    auto operator<=>(const Progress&) const = default;
  };

  // Counts beyond what can make a difference are one.
  Progress tidy(Progress p) const {
    if (most_ == kMany)
      p.items = std::min<uint64_t>(
          p.items, std::max<uint64_t>({shape_.prefix.size(), shape_.least, contains_ ? contains_->from : 0}));
    if (contains_ && contains_->most == kMany) p.matched = std::min(p.matched, contains_->least);
    return p;
  }
  bool may_end(const Progress& p) const {
    return p.items >= shape_.least && (!contains_ || (p.matched >= contains_->least && p.matched <= contains_->most));
  }

  struct Choice {
    SchemaId schema;
    Progress next;
  };
  // What the next item may be, and where that leads.
  std::vector<Choice> choices(const Progress& p) {
    std::vector<Choice> out;
    if (p.items >= most_) return out;
    const SchemaId item = shape_.at(p.items);
    const auto add = [&](SchemaId schema, uint64_t matched) {
      const Progress next = tidy({p.items + 1, matched});
      if (compiler_.is_satisfiable(schema) && may_finish(next)) out.push_back({schema, next});
    };
    if (!contains_ || p.items < contains_->from) {
      add(item, p.matched);
    } else if (contains_->most == kMany && p.matched >= contains_->least) {
      add(item, p.matched);
    } else {
      if (p.matched < contains_->most) add(compiler_.both(item, contains_->schema), p.matched + 1);
      const bool limited = contains_->most != kMany;
      add(limited ? compiler_.both(item, compiler_.complement(contains_->schema)) : item, p.matched);
    }
    return out;
  }

  // Whether some sequence of further items leads to an end. Only the number of items and of matches decides.
  bool may_finish(const Progress& p) {
    if (may_end(p)) return true;
    if (p.items >= most_) return false;
    const auto known = finish_.find(p);
    if (known != finish_.end()) return known->second;
    finish_[p] = false;  // a loop that gains nothing
    uint64_t left = most_ == kMany ? kMany : most_ - p.items;
    const uint64_t need = p.items < shape_.least ? shape_.least - p.items : 0;
    const uint64_t match = contains_ && p.matched < contains_->least ? contains_->least - p.matched : 0;
    bool answer = left >= need && left >= match;
    if (answer && contains_) {
      // Behind the prefix every item is alike: counting is enough. Within it, look.
      if (p.items < shape_.prefix.size()) {
        answer = !choices(p).empty();
      } else {
        const bool limited = contains_->most != kMany;
        if (match > 0) answer = compiler_.is_satisfiable(compiler_.both(shape_.rest, contains_->schema));
        if (need > match && limited) {
          const uint64_t spare = contains_->most - std::min(contains_->most, p.matched + match);
          answer = answer && (need - match <= spare || compiler_.is_satisfiable(compiler_.both(
                                                           shape_.rest, compiler_.complement(contains_->schema))));
        }
      }
    }
    return finish_[p] = answer;
  }

  StateId state(Phase phase, const Progress& p) {
    const auto [found, fresh] = states_.try_emplace({phase, p}, 0);
    if (fresh) {
      auto self = shared_from_this();
      found->second =
          compiler_.program.rules.add_state(rule_, [self, phase, p](StateId from) { self->leave(from, phase, p); });
    }
    return found->second;
  }

  void leave(StateId from, Phase phase, const Progress& p) {
    Rules& rules = compiler_.program.rules;
    if (phase == Phase::after) {
      if (may_end(p)) rules.add_lexeme(from, close_, end_);
      if (!choices(p).empty()) rules.add_lexeme(from, comma_, state(Phase::item, p));
      return;
    }
    if (phase == Phase::first && may_end(p)) rules.add_lexeme(from, close_empty_, end_);
    for (const Choice& choice : choices(p))
      compiler_.add_symbol(from, compiler_.symbol(choice.schema), state(Phase::after, choice.next));
  }

  SchemaCompiler& compiler_;
  const ArrayShape& shape_;
  RuleId rule_;
  StateId end_;
  uint64_t most_;  // items, those left out that nothing satisfies
  std::optional<ArrayShape::Contains> contains_;
  LexemeId comma_, close_, close_empty_;
  std::map<std::pair<Phase, Progress>, StateId> states_;
  std::map<Progress, bool> finish_;
};

}  // namespace

ExprId SchemaCompiler::scalars_expr(const Shape& shape) {
  std::vector<ExprId> parts;
  if (shape.null) parts.push_back(pool.literal("null"));
  if (shape.yes) parts.push_back(pool.literal("true"));
  if (shape.no) parts.push_back(pool.literal("false"));
  if (shape.numbers.kind == Scalars::Kind::all) parts.push_back(options.strict ? plain_number : any_number);
  if (shape.numbers.kind == Scalars::Kind::some) parts.push_back(shape.numbers.expr);
  if (shape.strings.kind != Scalars::Kind::none) {
    const ExprId quote = pool.literal("\"");
    parts.push_back(
        pool.concat({quote, shape.strings.kind == Scalars::Kind::all ? any_string : shape.strings.expr, quote}));
  }
  return pool.either(std::move(parts));
}

SchemaCompiler::Symbol SchemaCompiler::symbol(SchemaId id) {
  const Shape& found = shape(id);
  if (found.arrays.empty() && found.objects.empty()) return {true, program.lexer.add(scalars_expr(found))};
  return {false, rule(id)};
}

void SchemaCompiler::add_symbol(StateId from, Symbol symbol, StateId to) {
  if (symbol.is_lexeme)
    program.rules.add_lexeme(from, symbol.id, to);
  else
    program.rules.add_call(from, symbol.id, to);
}

RuleId SchemaCompiler::rule(SchemaId id) {
  if (entries_[id].rule) return *entries_[id].rule;
  const RuleId made = program.rules.add_rule();
  entries_[id].rule = made;
  const StateId end = program.rules.add_state(made, true);
  const StateId begin = program.rules.add_state(made, [this, id, made, end](StateId from) {
    const Shape& found = shape(id);
    program.add_expr(from, scalars_expr(found), end);
    for (const ArrayShape& array : found.arrays) add_array(array, made, from, end);
    for (const ObjectShape& object : found.objects) add_object(object, made, from, end);
  });
  program.rules.set_start(made, begin);
  return made;
}

void SchemaCompiler::add_array(const ArrayShape& shape, RuleId rule, StateId from, StateId to) {
  auto array = std::make_shared<ArrayRules>(*this, shape, rule, to);
  if (!array->is_possible()) return;
  const LexemeId open = program.lexer.add(pool.concat(pool.literal("["), white_space));
  program.rules.add_lexeme(from, open, array->first());
}

}  // namespace ingot::grammar
