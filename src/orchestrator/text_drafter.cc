#include "orchestrator/text_drafter.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr int64_t kLookPerStep = 4096;  // tokens of a prompt taken in at once
constexpr int64_t kKept = 4096;         // tokens of an answer
constexpr size_t kLogTokens = 1 << 15;  // of a client
constexpr size_t kClients = 64;

RecentAnswers::Client client_of(const Sequence& sequence) {
  return {sequence.request->spec.client, sequence.request->spec.cache_salt};
}

// How likely the next token is what followed `length` tokens before, for a sequence of which nothing is known.
double prior_of(int32_t length) { return length >= 8 ? 0.8 : length >= 5 ? 0.6 : 0.4; }

}  // namespace

void RecentAnswers::add(const Client& client, std::span<const int32_t> answer) {
  Log& log = logs_[client];
  log.used = ++uses_;
  log.tokens.insert(log.tokens.end(), answer.begin(), answer.end());
  log.tokens.push_back(-1);  // no text goes on here
  if (log.tokens.size() > kLogTokens) {
    log.tokens.erase(log.tokens.begin(), log.tokens.end() - static_cast<int64_t>(kLogTokens / 2));
    log.index.clear();
  }
  log.index.extend(log.tokens, std::ssize(log.tokens));
  if (logs_.size() > kClients)
    logs_.erase(std::ranges::min_element(logs_, {}, [](const auto& entry) { return entry.second.used; }));
}

const RecentAnswers::Log* RecentAnswers::of(const Client& client) {
  const auto found = logs_.find(client);
  if (found == logs_.end()) return nullptr;
  found->second.used = ++uses_;
  return &found->second;
}

void TextDrafter::look(Sequence& sequence) { sequence.index.extend(sequence.tokens, kLookPerStep); }

void TextDrafter::offer(Guess& guess, int32_t most) {
  Sequence& sequence = *guess.sequence;
  look(sequence);
  const std::span<const int32_t> text = sequence.tokens;
  std::span<const int32_t> list = text;
  TokenIndex::Match match = sequence.index.find(text, text);
  if (recent_) {
    if (const RecentAnswers::Log* log = answers_.of(client_of(sequence))) {
      const TokenIndex::Match other = log->index.find(log->tokens, text);
      if (other.length > match.length) {
        match = other;
        list = log->tokens;
      }
    }
  }
  if (match.length == 0) return;
  guess.prior = prior_of(match.length);
  for (auto i = match.end; std::ssize(guess.tokens) < most; ++i) {
    // Past the end of the text a repetition goes on in its own guesses.
    const int32_t token = i < std::ssize(list)         ? list[static_cast<size_t>(i)]
                          : list.data() == text.data() ? guess.tokens[static_cast<size_t>(i - std::ssize(list))]
                                                       : -1;
    if (token < 0) break;
    guess.tokens.push_back(token);
  }
  guess.most = static_cast<int32_t>(guess.tokens.size());
}

void TextDrafter::keep(const Sequence& sequence) {
  if (!recent_) return;
  const std::span<const int32_t> answer = std::span(sequence.tokens).subspan(sequence.request->prompt_len);
  if (std::ssize(answer) >= TokenIndex::kLeast)
    answers_.add(client_of(sequence), answer.first(std::min<size_t>(answer.size(), kKept)));
}

}  // namespace ingot
