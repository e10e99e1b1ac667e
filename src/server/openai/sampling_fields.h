#pragma once

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// Reads what both completions endpoints share: model, sampling, format, stopping, choices, beams, streaming, and how
// the answer is written. The endpoints read `logprobs` and their prompts themselves, and call check_together() last.
void take_shared_fields(Fields& fields, const RequestLimits& limits, CompletionRequest& request);

// Reads how tokens are drawn: temperature, which is returned, top_p, top_k, min_p, the penalties and the seed.
// `defaults` is what holds where nothing is said.
std::optional<double> take_drawing(Fields& fields, const SamplingParams& defaults, GenerationRequest& generation);

// truncate_prompt_tokens: how many tokens of a prompt's end are kept; -1: as many as the context holds.
std::optional<int64_t> take_truncation(Fields& fields);

// Rules between parameters, for a request with this many prompts.
void check_together(const RequestLimits& limits, size_t prompts, const CompletionRequest& request);

}  // namespace ingot::server::openai
