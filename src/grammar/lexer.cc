#include "grammar/lexer.h"

#include <algorithm>

namespace ingot::grammar {

Lexer::Lexer(ExprPool& pool, Budget& budget) : pool_(pool), budget_(budget) {
  endings_.emplace_back();
  intern({});
}

LexemeId Lexer::add(ExprId expr) {
  const uint64_t hash = mix(1, expr);
  const uint32_t found = lexeme_index_.find(hash, [&](uint32_t id) { return lexemes_[id] == expr; });
  if (found != HashIndex::kNone) return found;
  lexemes_.push_back(expr);
  const auto id = static_cast<uint32_t>(lexemes_.size() - 1);
  lexeme_index_.insert(hash, id);
  return id;
}

LexState Lexer::start(std::span<const LexemeId> lexemes) {
  std::vector<Part> parts;
  for (const LexemeId lexeme : lexemes)
    if (!pool_.is_nothing(lexemes_[lexeme])) parts.push_back({lexeme, lexemes_[lexeme]});
  return intern(std::move(parts));
}

uint32_t Lexer::intern_ending(const std::vector<Part>& parts) {
  std::vector<LexemeId> ending;
  for (const Part& part : parts)
    if (pool_.nullable(part.expr)) ending.push_back(part.lexeme);
  if (ending.empty()) return 0;
  uint64_t hash = 2;
  for (const LexemeId lexeme : ending) hash = mix(hash, lexeme);
  const uint32_t found = ending_index_.find(hash, [&](uint32_t id) { return endings_[id] == ending; });
  if (found != HashIndex::kNone) return found;
  endings_.push_back(std::move(ending));
  const auto id = static_cast<uint32_t>(endings_.size() - 1);
  ending_index_.insert(hash, id);
  return id;
}

LexState Lexer::intern(std::vector<Part> parts) {
  uint64_t hash = 3;
  for (const Part& part : parts) hash = mix(hash, uint64_t{part.lexeme} << 32 | part.expr);
  const uint32_t found = state_index_.find(hash, [&](uint32_t id) { return states_[id].parts == parts; });
  if (found != HashIndex::kNone) return found;
  budget_.spend(sizeof(State) + 2 * sizeof(Step) + parts.size() * sizeof(Part));
  const uint32_t ending = intern_ending(parts);
  const bool done = std::ranges::all_of(parts, [](const Part& part) { return part.expr == ExprPool::kEmpty; });
  states_.push_back({std::move(parts), ending, done, {}});
  const auto id = static_cast<uint32_t>(states_.size() - 1);
  state_index_.insert(hash, id);
  return id;
}

Lexer::Step Lexer::step(LexState state, uint8_t byte) {
  for (const Step& step : states_[state].steps)
    if (step.bytes.has(byte)) return step;
  ByteSet same = ByteSet::all();
  std::vector<Part> parts;
  for (const Part& part : states_[state].parts) {
    const ExprPool::Step step = pool_.derive(part.expr, byte);
    same = same & step.bytes;
    if (!pool_.is_nothing(step.next)) parts.push_back({part.lexeme, step.next});
  }
  const Step step{same, intern(std::move(parts))};
  for (Step& known : states_[state].steps)
    if (known.next == step.next) {
      known.bytes = known.bytes | step.bytes;
      return known;
    }
  states_[state].steps.push_back(step);
  return step;
}

}  // namespace ingot::grammar
