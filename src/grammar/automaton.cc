#include "grammar/automaton.h"

#include <algorithm>

namespace ingot::grammar {

Automaton::Automaton(Earley& earley, Lexer& lexer, Budget& budget) : earley_(earley), lexer_(lexer), budget_(budget) {
  dead_ = intern({}, false);
  dead_->next.fill(dead_);
  const RowId row = earley.first();
  std::vector<Configuration::Thread> threads;
  if (const LexState start = earley.lexer_start(row); start != Lexer::kDead) threads.push_back({row, start});
  first_ = intern(std::move(threads), earley.is_complete(row));
}

Configuration* Automaton::step_fresh(Configuration* from, uint8_t byte) {
  ByteSet same = ByteSet::all();
  std::vector<Configuration::Thread> threads;
  std::vector<Earley::Scan> scans;  // what ends with this byte
  for (const Configuration::Thread& thread : from->threads) {
    const Lexer::Step step = lexer_.step(thread.lexer, byte);
    same = same & step.bytes;
    if (step.next == Lexer::kDead) continue;
    threads.push_back({thread.row, step.next});
    if (const uint32_t ending = lexer_.ending(step.next); ending != 0) scans.push_back({thread.row, ending});
  }
  bool complete = false;
  if (!scans.empty()) {
    const RowId row = earley_.advance(scans);
    complete = earley_.is_complete(row);
    if (const LexState start = earley_.lexer_start(row); start != Lexer::kDead) threads.push_back({row, start});
    // A lexeme that has ended and can go on no further is no thread.
    std::erase_if(threads, [&](const auto& thread) { return lexer_.is_done(thread.lexer); });
  }
  Configuration* to = intern(std::move(threads), complete);
  same.each([&](uint8_t other) { from->next[other] = to; });
  return to;
}

Configuration* Automaton::intern(std::vector<Configuration::Thread> threads, bool complete) {
  std::ranges::sort(threads);
  uint64_t hash = complete ? 7 : 6;
  for (const auto& thread : threads) hash = mix(hash, uint64_t{thread.row} << 32 | thread.lexer);
  const uint32_t found =
      index_.find(hash, [&](uint32_t id) { return all_[id]->complete == complete && all_[id]->threads == threads; });
  if (found != HashIndex::kNone) return all_[found].get();
  budget_.spend(sizeof(Configuration) + threads.size() * sizeof(Configuration::Thread));
  all_.push_back(std::make_unique<Configuration>());
  Configuration& made = *all_.back();
  made.threads = std::move(threads);
  made.complete = complete;
  made.number = static_cast<uint32_t>(all_.size() - 1);
  index_.insert(hash, made.number);
  return &made;
}

}  // namespace ingot::grammar
