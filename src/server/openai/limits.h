#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ingot/step.h"

namespace ingot::server::openai {

// What one request may ask for. The first part follows from the model, the rest is set with --limit NAME=VALUE: one
// table (limit_table()) has the names, for the flag, the errors and the docs.
struct RequestLimits {
  int64_t vocab = 0;
  SamplingParams sampling;  // of a request that says nothing: as the model's makers advise, else OpenAI's defaults
  int64_t max_n = 128;      // choices of one prompt
  int64_t max_beams = 16;   // likewise, with beam search

  int64_t max_choices = 128;            // prompts times choices, best_of included
  int64_t max_prompts = 256;            // of one completions request
  int64_t max_inputs = 1024;            // texts of an embeddings request; documents that are rated
  int64_t max_logprobs = 20;            // alternatives a token
  int64_t max_stop = 64;                // stop strings; bad words
  int64_t max_stop_bytes = 1024;        // of each of them, and of cache_salt
  int64_t max_grammar_bytes = 1 << 20;  // of a schema, a grammar, a regular expression, all choices
  int64_t max_values = 2'000'000;       // of a body's JSON
  int64_t max_keys = 100'000;           // of all objects of a body
  int64_t max_answer_bytes = 64 << 20;  // of an answer that is not streamed, estimated before it is begun
};

struct LimitInfo {
  std::string_view name;
  int64_t RequestLimits::* value;
  int64_t least;  // that can be set
  std::string_view help;
};
std::span<const LimitInfo> limit_table();

// Takes "stop-bytes=4096". Throws Error: no such limit, or not a number it can be.
void set_limit(RequestLimits& limits, std::string_view setting);

}  // namespace ingot::server::openai
