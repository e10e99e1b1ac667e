// From shapes to rules: values and arrays.
#include <algorithm>
#include <map>
#include <tuple>

#include "grammar/schema/compiler.h"

namespace ingot::grammar {
namespace {

// The states of one array: how many items there are, as far as that matters, and how many of them each `contains` has
// met.
class ArrayRules : public std::enable_shared_from_this<ArrayRules> {
 public:
  ArrayRules(SchemaCompiler& compiler, const ArrayShape& shape, RuleId rule, StateId end)
      : compiler_(compiler), shape_(shape), rule_(rule), end_(end), most_(shape.most) {
    for (uint64_t i = 0; i <= shape.prefix.size() && i < most_; ++i)
      if (!compiler.is_satisfiable(shape.at(i))) most_ = i;
    counted_ = std::max<uint64_t>(shape.prefix.size(), shape.least);
    for (const ArrayShape::Contains& contains : shape.contains) counted_ = std::max(counted_, contains.from);
    if (shape.unique && most_ > 1) {  // each of the values once
      values_ = compiler.shape(shape.rest).values;
      most_ = std::min<uint64_t>(most_, values_.size());
    }
    ExprPool& pool = compiler.pool;
    Lexer& lexer = compiler.program.lexer;
    const ExprId space = compiler.white_space;
    comma_ = lexer.add(pool.concat({space, pool.literal(","), space}));
    close_ = lexer.add(pool.concat(space, pool.literal("]")));
    close_empty_ = lexer.add(pool.literal("]"));
  }

  bool is_possible() { return may_finish(start()); }
  StateId first() { return state(Phase::first, start()); }

 private:
  enum class Phase { first, item, after };
  struct Progress {
    uint64_t items = 0;
    std::vector<uint64_t> matched;  // by `contains`
    std::vector<bool> seen;         // by value, where each may be there once
    auto operator<=>(const Progress&) const = default;
  };
  struct Choice {
    SchemaCompiler::Symbol symbol;
    Progress next;
  };

  Progress start() const {
    return {0, std::vector<uint64_t>(shape_.contains.size()), std::vector<bool>(values_.size())};
  }

  // One item more; counts beyond what can make a difference are one.
  Progress after(const Progress& p, uint32_t matches) const {
    Progress next = p;
    next.items = most_ == kMany ? std::min(p.items + 1, counted_) : p.items + 1;
    for (size_t i = 0; i < shape_.contains.size(); ++i) {
      next.matched[i] += matches >> i & 1;
      if (shape_.contains[i].most == kMany) next.matched[i] = std::min(next.matched[i], shape_.contains[i].least);
    }
    return next;
  }
  bool may_end(const Progress& p) const {
    if (p.items < shape_.least) return false;
    for (size_t i = 0; i < shape_.contains.size(); ++i)
      if (p.matched[i] < shape_.contains[i].least || p.matched[i] > shape_.contains[i].most) return false;
    return true;
  }

  // What the next item may be, by the set of `contains` that it matches, and where that leads.
  std::vector<Choice> choices(const Progress& p) {
    std::vector<Choice> out;
    if (p.items >= most_) return out;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (p.seen[i]) continue;
      out.push_back({{true, compiler_.program.lexer.add(values_[i])}, after(p, 0)});
      out.back().next.seen[i] = true;
    }
    if (!values_.empty()) return out;
    for (uint32_t matches = 0; matches < uint32_t{1} << shape_.contains.size(); ++matches) {
      SchemaId item = shape_.at(p.items);
      for (size_t i = 0; i < shape_.contains.size(); ++i) {
        const ArrayShape::Contains& contains = shape_.contains[i];
        const bool counts = p.items >= contains.from;
        if ((matches >> i & 1) != 0)
          item = !counts || p.matched[i] >= (contains.most == kMany ? contains.least : contains.most)
                     ? kNoValue
                     : compiler_.both(item, contains.schema);
        else if (counts && contains.most != kMany)
          item = compiler_.both(item, compiler_.complement(contains.schema));
      }
      if (!compiler_.is_satisfiable(item)) continue;
      Progress next = after(p, matches);
      if (may_finish(next)) out.push_back({compiler_.symbol(item), std::move(next)});
    }
    return out;
  }

  // Whether some further items lead to an end. Without `contains` that is a matter of counting.
  bool may_finish(const Progress& p) {
    if (may_end(p)) return true;
    if (p.items >= most_ || shape_.least > most_) return false;
    if (shape_.contains.empty()) return true;
    const auto [known, fresh] = finish_.try_emplace(p, false);  // no: an item that gains nothing
    if (fresh && !choices(p).empty()) finish_[p] = true;
    return finish_[p];
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
    for (const Choice& choice : choices(p)) compiler_.add_symbol(from, choice.symbol, state(Phase::after, choice.next));
  }

  SchemaCompiler& compiler_;
  const ArrayShape& shape_;
  RuleId rule_;
  StateId end_;
  uint64_t most_;     // items, those left out that nothing satisfies
  uint64_t counted_;  // items beyond these are alike
  std::vector<ExprId> values_;
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
  if (shape.numbers.kind != Scalars::Kind::none) {
    const bool all = shape.numbers.kind == Scalars::Kind::all;
    const ExprId numbers = !all ? shape.numbers.expr : options.strict ? plain_number : any_number;
    const ExprId brief = options.short_numbers ? pool.both({all ? plain_number : numbers, short_number}) : numbers;
    parts.push_back(pool.is_nothing(brief) ? numbers : brief);  // its bounds lie beyond so many digits
  }
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
