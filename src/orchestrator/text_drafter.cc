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

// The token that stands at most of the places, the first of equals, and how often; -1: none.
template <typename TokenAt>
std::pair<int32_t, int32_t> most_frequent(std::span<const int64_t> places, const TokenAt& token_at) {
  std::pair<int32_t, int32_t> best{-1, 0};
  for (const int64_t place : places) {
    const int32_t token = token_at(place);
    const auto count =
        static_cast<int32_t>(std::ranges::count_if(places, [&](int64_t other) { return token_at(other) == token; }));
    if (token >= 0 && count > best.second) best = {token, count};
  }
  return best;
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
  TokenIndex::Matches matches = sequence.index.find(text, text);
  if (recent_) {
    if (const RecentAnswers::Log* log = answers_.of(client_of(sequence))) {
      const TokenIndex::Matches other = log->index.find(log->tokens, text);
      if (other.length > matches.length) {
        matches = other;
        list = log->tokens;
      }
    }
  }
  if (matches.length == 0) return;
  // Past the end of the text a repetition goes on in its own guesses.
  const auto token_at = [&](int64_t place) {
    if (place < std::ssize(list)) return list[static_cast<size_t>(place)];
    return list.data() == text.data() ? guess.tokens[static_cast<size_t>(place - std::ssize(list))] : -1;
  };
  guess.prior = prior_of(matches.length);
  std::vector<int64_t> places(matches.ends.begin(), matches.ends.begin() + matches.count);
  while (std::ssize(guess.tokens) < most) {
    const auto [token, votes] = most_frequent(places, token_at);
    if (token < 0) break;
    if (guess.tokens.empty()) guess.prior *= (votes + 1.0) / (matches.count + 1.0);
    std::erase_if(places, [&](int64_t place) { return token_at(place) != token; });
    for (int64_t& place : places) ++place;
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
