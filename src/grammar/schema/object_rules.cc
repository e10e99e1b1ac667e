// From shapes to rules: objects.
#include <algorithm>
#include <bit>
#include <map>

#include "grammar/schema/compiler.h"

namespace ingot::grammar {
namespace {

// The states of one object: which properties have been, how many members there are as far as that matters, which of
// `some` have been met. Where keys come in any order there is a state for each set of keys, made as it is met.
class ObjectRules : public std::enable_shared_from_this<ObjectRules> {
 public:
  ObjectRules(SchemaCompiler& compiler, const ObjectShape& shape, RuleId rule, StateId end)
      : compiler_(compiler), shape_(shape), rule_(rule), end_(end), ordered_(compiler.options.strict) {
    ExprPool& pool = compiler.pool;
    Lexer& lexer = compiler.program.lexer;
    const ExprId space = compiler.white_space;
    comma_ = lexer.add(pool.concat({space, pool.literal(","), space}));
    close_ = lexer.add(pool.concat(space, pool.literal("}")));
    close_empty_ = lexer.add(pool.literal("}"));
    for (size_t i = 0; i < shape.properties.size(); ++i) {
      const ObjectShape::Property& property = shape.properties[i];
      possible_.push_back(compiler.is_satisfiable(property.schema));
      required_.push_back(property.required);
      add_choices(compiler.program.json.literal(property.name), property.schema, i);
    }
    const ExprId names = compiler.names_expr(shape);
    for (const ObjectShape::Keys& keys : shape.others) {
      // Any spelling, where no name is told from another.
      const bool any = keys.keys == ExprPool::kAll && shape.properties.empty() && shape.some.empty();
      const ExprId text =
          any ? compiler.any_string : pool.both({compiler.plain_string, keys.keys, pool.complement(names)});
      add_choices(text, keys.schema, kOther);
    }
    has_others_ = std::ranges::any_of(choices_, [](const Choice& choice) { return choice.property == kOther; });
    for (const ObjectShape::Implication& implication : shape.implications)
      implications_.emplace_back(index_of(implication.first), index_of(implication.second));
    counted_ = shape.least > 0 || shape.most != kMany;
  }

  bool is_possible() { return may_finish(start()); }
  StateId first() { return state(Phase::first, start()); }

 private:
  static constexpr size_t kOther = SIZE_MAX;
  enum class Phase { first, key, after };
  struct Choice {
    LexemeId key;  // with the colon
    SchemaId schema;
    size_t property;
    uint32_t meets;  // of `some`
  };
  struct Progress {
    std::vector<bool> seen;  // by property
    size_t next = 0;         // ordered: properties before this one are gone
    uint64_t members = 0;
    uint32_t met = 0;
    auto operator<=>(const Progress&) const = default;
  };

  Progress start() const { return {std::vector<bool>(shape_.properties.size())}; }
  size_t index_of(const std::string& name) const {
    const auto found = std::ranges::find(shape_.properties, name, &ObjectShape::Property::name);
    return static_cast<size_t>(found - shape_.properties.begin());
  }

  // One for each set of `some` that the member may meet at once.
  void add_choices(ExprId name, SchemaId schema, size_t property) {
    for (uint32_t meets = 0; meets < uint32_t{1} << shape_.some.size(); ++meets) {
      ExprId keys = name;
      SchemaId values = schema;
      for (size_t s = 0; s < shape_.some.size(); ++s) {
        if ((meets >> s & 1) == 0) continue;
        keys = compiler_.pool.both({keys, shape_.some[s].keys});
        values = compiler_.both(values, shape_.some[s].schema);
      }
      add_choice(keys, values, property, meets);
    }
  }

  void add_choice(ExprId name, SchemaId schema, size_t property, uint32_t meets) {
    ExprPool& pool = compiler_.pool;
    if (pool.is_nothing(name) || !compiler_.is_satisfiable(schema)) return;
    const ExprId space = compiler_.white_space, quote = pool.literal("\"");
    const ExprId key = pool.concat({quote, name, quote, space, pool.literal(":"), space});
    choices_.push_back({compiler_.program.lexer.add(key), schema, property, meets});
  }

  bool may_end(const Progress& p) const {
    if (p.members < shape_.least || p.met + 1 != uint32_t{1} << shape_.some.size()) return false;
    for (size_t i = 0; i < required_.size(); ++i)
      if (required_[i] && !p.seen[i]) return false;
    return std::ranges::all_of(implications_,
                               [&](const auto& pair) { return !p.seen[pair.first] || p.seen[pair.second]; });
  }

  // Whether the object can still be ended: what must come has its place, and there are not too many members for it.
  bool may_finish(const Progress& p) const {
    if (p.members > shape_.most) return false;
    std::vector<bool> must = required_;
    for (size_t i = 0; i < must.size(); ++i) must[i] = must[i] || p.seen[i];
    for (bool more = true; more;) {
      more = false;
      for (const auto& [first, second] : implications_) {
        if (must[first] && !must[second]) more = must[second] = true;
      }
    }
    uint64_t missing = 0, possible = 0;
    for (size_t i = 0; i < must.size(); ++i) {
      if (p.seen[i]) continue;
      const bool can = possible_[i] && i >= p.next;
      if (must[i] && !can) return false;
      if (must[i]) ++missing;
      if (can) ++possible;
    }
    if (!counted_) return true;
    const uint64_t unmet = static_cast<uint64_t>(std::popcount((uint32_t{1} << shape_.some.size()) - 1 - p.met));
    if (shape_.most - p.members < std::max<uint64_t>(missing, unmet > 0 ? 1 : 0)) return false;
    return has_others_ || p.members + possible >= shape_.least;
  }

  // After a member; nothing where that cannot be.
  std::optional<Progress> after(const Progress& p, const Choice& choice) const {
    Progress next = p;
    if (choice.property != kOther) {
      if (p.seen[choice.property]) return std::nullopt;
      next.seen[choice.property] = true;
    }
    if (ordered_) {
      const size_t place = std::min(choice.property, p.seen.size());
      if (place < p.next) return std::nullopt;
      next.next = choice.property == kOther ? place : place + 1;
    }
    next.met |= choice.meets;
    next.members = counted_ ? p.members + 1 : 0;
    if (counted_ && shape_.most == kMany) next.members = std::min(next.members, shape_.least);
    if (!may_finish(next)) return std::nullopt;
    return next;
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
      if (std::ranges::any_of(choices_, [&](const Choice& choice) { return after(p, choice).has_value(); }))
        rules.add_lexeme(from, comma_, state(Phase::key, p));
      return;
    }
    if (phase == Phase::first && may_end(p)) rules.add_lexeme(from, close_empty_, end_);
    for (const Choice& choice : choices_) {
      const auto next = after(p, choice);
      if (!next) continue;
      const StateId value = rules.add_state(rule_);
      rules.add_lexeme(from, choice.key, value);
      compiler_.add_symbol(value, compiler_.symbol(choice.schema), state(Phase::after, *next));
    }
  }

  SchemaCompiler& compiler_;
  const ObjectShape& shape_;
  RuleId rule_;
  StateId end_;
  bool ordered_, counted_ = false, has_others_ = false;
  LexemeId comma_, close_, close_empty_;
  std::vector<Choice> choices_;
  std::vector<bool> possible_, required_;  // by property
  std::vector<std::pair<size_t, size_t>> implications_;
  std::map<std::pair<Phase, Progress>, StateId> states_;
};

}  // namespace

void SchemaCompiler::add_object(const ObjectShape& shape, RuleId rule, StateId from, StateId to) {
  auto object = std::make_shared<ObjectRules>(*this, shape, rule, to);
  if (!object->is_possible()) return;
  const LexemeId open = program.lexer.add(pool.concat(pool.literal("{"), white_space));
  program.rules.add_lexeme(from, open, object->first());
}

}  // namespace ingot::grammar
