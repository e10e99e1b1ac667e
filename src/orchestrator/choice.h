#pragma once

#include <memory>

#include "orchestrator/request.h"

namespace ingot {

class Tokenizer;

// Prepares a sequence to turn its tokens into text. Without a tokenizer there is no text.
void begin_choice(Sequence& sequence, const Tokenizer* tokenizer);

// Takes a sampled token: appends it, its text and its score, and decides whether it ends the choice. What is certain
// goes to the request's generation (or is kept, when the best choices are only known at the end).
void accept_token(Sequence& sequence, const RowResult& row);

// Why nothing can be chosen where nothing is forbidden.
inline constexpr const char* kNoLogits = "the model gave logits that are not numbers: no token can be chosen";

// The sampler found no token: the choice ends, by what its request forbids or else by a fault of the model's logits.
void end_without_token(Sequence& sequence, size_t ahead);

// Ends a choice that did not end by itself: text that was held back still goes out.
void end_choice(Sequence& sequence, FinishReason reason);

// Sends the n best of the kept choices, the most likely first: by logprob per token, or, for beams, by their own rank.
void send_kept(Request& request, const Tokenizer* tokenizer);

}  // namespace ingot
