#include "orchestrator/choice.h"

#include <algorithm>
#include <utility>

#include "ingot/tokenizer.h"
#include "orchestrator/beam_search.h"

namespace ingot {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Hands a delta on, or keeps it.
void deliver(Sequence& sequence, ChoiceDelta delta) {
  if (!sequence.request->keep_all) {
    sequence.request->generation->append(std::move(delta));
    return;
  }
  sequence.text += delta.text;
  std::move(delta.scores.begin(), delta.scores.end(), std::back_inserter(sequence.scores));
  if (delta.finish != FinishReason::none) sequence.stop_reason = std::move(delta.stop_reason);
}

// Pushes the token's text; true when a stop string is complete.
bool push_text(Sequence& sequence, int32_t token, std::string& out) {
  if (!sequence.detokenizer) return false;
  const std::string piece = sequence.detokenizer->push(token);
  if (sequence.generated() < sequence.request->spec.sampling.min_tokens) {
    sequence.stop_text->pass(piece, out);
    return false;
  }
  return sequence.stop_text->push(piece, out);
}

// The end of the text: bytes of an incomplete character, and what might have become a stop string. True: it did.
bool finish_text(Sequence& sequence, std::string& out) {
  if (!sequence.detokenizer) return false;
  if (sequence.stop_text->push(sequence.detokenizer->finish(), out)) return true;
  sequence.stop_text->finish(out);
  return false;
}

TokenScore score_of(const RowResult& row) {
  return {.token = row.token, .logprob = row.logprob, .rank = row.rank, .top = row.top};
}

void send_choice(Request& request, int32_t index, const Sequence& sequence, std::string text) {
  ChoiceDelta delta{.index = index, .text = std::move(text)};
  delta.token_ids.assign(sequence.tokens.begin() + request.prompt_len, sequence.tokens.end());
  if (request.spec.logprobs >= 0) {
    delta.scores = sequence.scores;
    for (TokenScore& score : delta.scores)  // beams look at more alternatives than were asked for
      if (score.top.size() > static_cast<size_t>(request.spec.logprobs)) score.top.resize(request.spec.logprobs);
  }
  delta.finish = sequence.finish;
  delta.stop_reason = sequence.stop_reason;
  request.generation->append(std::move(delta));
}

}  // namespace

void begin_choice(Sequence& sequence, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return;
  const GenerationRequest& spec = sequence.request->spec;
  sequence.detokenizer.emplace(*tokenizer, spec.skip_special_tokens);
  sequence.stop_text.emplace(spec.stop, spec.include_stop);
}

void accept_token(Sequence& sequence, const RowResult& row) {
  Request& request = *sequence.request;
  const GenerationRequest& spec = request.spec;
  ChoiceDelta delta{.index = sequence.choice};
  sequence.tokens.push_back(row.token);
  delta.token_ids.push_back(row.token);
  if (request.reports_scores()) {
    sequence.logprob += row.logprob;
    delta.scores.push_back(score_of(row));
  }
  const bool user_stop = contains(spec.sampling.stop_token_ids, row.token);
  if (user_stop && sequence.generated() >= spec.sampling.min_tokens) {
    delta.finish = FinishReason::stop;
    // Only the ids the caller named are a reason worth telling; the model's own end token is not.
    if (contains(request.named_stop_ids, row.token)) delta.stop_reason = row.token;
    if (spec.include_stop && push_text(sequence, row.token, delta.text))
      delta.stop_reason = sequence.stop_text->found();
  } else if (push_text(sequence, row.token, delta.text)) {
    delta.finish = FinishReason::stop;
    delta.stop_reason = sequence.stop_text->found();
  } else if (sequence.generated() >= request.max_tokens) {
    delta.finish = FinishReason::length;
  }
  const bool by_text = std::holds_alternative<std::string>(delta.stop_reason);
  if (delta.finish != FinishReason::none && !by_text && finish_text(sequence, delta.text)) {
    delta.finish = FinishReason::stop;
    delta.stop_reason = sequence.stop_text->found();
  }
  sequence.finish = delta.finish;
  deliver(sequence, std::move(delta));
}

void end_without_token(Sequence& sequence, size_t ahead) {
  Request& request = *sequence.request;
  const SamplingParams& sampling = request.spec.sampling;
  if (sequence.guide && sequence.guide->complete(ahead)) return end_choice(sequence, FinishReason::stop);
  const bool forbidden = sequence.guide || !sampling.allowed_token_ids.empty() || !sampling.bad_words.empty() ||
                         sequence.generated() < sampling.min_tokens;
  if (!forbidden) request.summary.error = kNoLogits;
  end_choice(sequence, forbidden ? FinishReason::no_token : FinishReason::error);
}

void end_choice(Sequence& sequence, FinishReason reason) {
  ChoiceDelta delta{.index = sequence.choice};
  finish_text(sequence, delta.text);
  delta.finish = sequence.finish = reason;
  deliver(sequence, std::move(delta));
}

void send_kept(Request& request, const Tokenizer* tokenizer) {
  std::vector<const Sequence*> best;
  if (request.spec.beam_search) {
    best = ranked_beams(request);
  } else {
    for (const auto& sequence : request.sequences) best.push_back(sequence.get());
    const auto mean = [](const Sequence& s) {
      return s.logprob / static_cast<double>(std::max<int64_t>(1, s.generated()));
    };
    std::stable_sort(best.begin(), best.end(),
                     [&](const Sequence* a, const Sequence* b) { return mean(*a) > mean(*b); });
  }
  for (int32_t i = 0; i < request.spec.n && i < static_cast<int32_t>(best.size()); ++i) {
    std::string text = best[i]->text;
    if (request.spec.beam_search && tokenizer != nullptr) text = beam_text(*best[i], *tokenizer);
    send_choice(request, i, *best[i], std::move(text));
  }
}

}  // namespace ingot
