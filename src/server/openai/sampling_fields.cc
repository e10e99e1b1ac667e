#include "server/openai/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/openai/errors.h"
#include "server/openai/structured_fields.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
// Below it a temperature means greedy, as in vLLM: 1 / temperature would leave what a float can hold.
constexpr float kGreedyTemperature = 1e-5f;

void take_float(Fields& fields, const char* name, float& value) {
  if (const auto number = fields.number(name)) value = static_cast<float>(*number);
}

void take_flag(Fields& fields, const char* name, bool& value) { value = fields.boolean(name).value_or(value); }

std::vector<std::pair<int32_t, float>> take_logit_bias(Fields& fields, int64_t vocab) {
  const Json* value = fields.take("logit_bias");
  if (value == nullptr) return {};
  if (!value->is_object())
    fail("logit_bias", "invalid_type", "must be an object of token ids and numbers, got {}", kind_of(*value));
  std::vector<std::pair<int32_t, float>> biases;
  for (const auto& [key, bias] : value->get_ref<const Json::object_t&>()) {
    const std::string path = "logit_bias." + printable(key);
    int64_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= vocab)
      fail(path, "invalid_value", "must be named by a token id in [0, {})", vocab);
    if (!bias.is_number()) fail(path, "invalid_type", "must be a number, got {}", kind_of(bias));
    const auto number = bias.get<double>();
    if (!(number >= -100 && number <= 100)) fail(path, "invalid_value", "must be between -100 and 100, got {}", number);
    biases.emplace_back(static_cast<int32_t>(token), static_cast<float>(number));
  }
  // "7" and "07" name one token.
  std::sort(biases.begin(), biases.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (const auto twice = std::adjacent_find(biases.begin(), biases.end(), same); twice != biases.end())
    fail("logit_bias", "invalid_value", "names token {} twice", twice->first);
  return biases;
}

void take_sampling(Fields& fields, const RequestLimits& limits, CompletionRequest& request) {
  GenerationRequest& g = request.generation;
  SamplingParams& s = g.sampling;
  // Advice is for draws, and beams are not drawn.
  take_flag(fields, "use_beam_search", g.beam_search);
  const std::optional<double> temperature = take_drawing(fields, g.beam_search ? SamplingParams{} : limits.sampling, g);
  s.logit_bias = take_logit_bias(fields, limits.vocab);
  const size_t vocab = static_cast<size_t>(limits.vocab);
  if (const Json* allowed = fields.take("allowed_token_ids")) {
    if (!allowed->is_array())
      fail("allowed_token_ids", "invalid_type", "must be a list of token ids, got {}", kind_of(*allowed));
    if (allowed->empty()) fail("allowed_token_ids", "empty_array", "may not be empty: nothing could be generated");
    if (allowed->size() > vocab)
      fail("allowed_token_ids", "array_above_max_length", "may hold at most {} token ids, got {}", vocab,
           allowed->size());
    s.allowed_token_ids = token_list(*allowed, "allowed_token_ids", limits.vocab);
  }
  s.stop_token_ids = fields.tokens("stop_token_ids", 1024, limits.vocab);
  s.min_tokens = static_cast<int32_t>(fields.integer("min_tokens").value_or(0));

  g.stop = fields.strings("stop", limits);
  g.bad_words = fields.strings("bad_words", limits);
  g.structured = take_structured(fields, limits);
  take_flag(fields, "include_stop_str_in_output", g.include_stop);
  take_flag(fields, "ignore_eos", g.ignore_eos);
  take_flag(fields, "skip_special_tokens", g.skip_special_tokens);
  take_flag(fields, "speculate", g.speculate);

  g.n = static_cast<int32_t>(fields.integer("n").value_or(1));
  g.best_of = static_cast<int32_t>(fields.integer("best_of").value_or(0));
  g.priority = static_cast<int32_t>(fields.integer("priority").value_or(0));
  g.cache_salt = fields.string("cache_salt").value_or("");
  if (g.cache_salt.size() > static_cast<size_t>(limits.max_stop_bytes))
    fail("cache_salt", "string_above_max_length", "may have at most {} bytes (--limit stop-bytes), got {}",
         limits.max_stop_bytes, g.cache_salt.size());
  g.length_penalty = fields.number("length_penalty").value_or(g.length_penalty);
  take_flag(fields, "early_stopping", g.early_stopping);
  if (g.beam_search) {
    if (temperature && s.temperature != 0)
      fail("temperature", "invalid_value", "must be 0 or absent with use_beam_search, got {}", *temperature);
    s.temperature = 0;
  } else if (g.length_penalty != 1.0) {
    fail("length_penalty", "invalid_value", "has a meaning with use_beam_search only");
  } else if (g.early_stopping) {
    fail("early_stopping", "invalid_value", "has a meaning with use_beam_search only");
  }
}

void take_stream(Fields& fields, OutputOptions& output) {
  take_flag(fields, "stream", output.stream);
  take_flag(fields, "return_progress", output.progress);
  if (output.progress && !output.stream)
    fail("return_progress", "invalid_value", "may be set only together with stream: true");
  const Json* options = fields.take("stream_options");
  if (options == nullptr) return;
  Fields inner(*options, "stream_options");
  if (!output.stream) fail("stream_options", "invalid_value", "may be set only together with stream: true");
  take_flag(inner, "include_usage", output.include_usage);
  take_flag(inner, "continuous_usage_stats", output.continuous_usage);
  inner.boolean("include_obfuscation");  // padding against eavesdroppers; there is none to leave out
  inner.refuse_rest();
}

}  // namespace

std::optional<double> take_drawing(Fields& fields, const SamplingParams& defaults, GenerationRequest& generation) {
  SamplingParams& s = generation.sampling;
  s = defaults;
  const std::optional<double> temperature = fields.number("temperature");
  if (temperature) s.temperature = static_cast<float>(*temperature);
  if (s.temperature < kGreedyTemperature) s.temperature = 0;
  take_float(fields, "top_p", s.top_p);
  s.top_k = static_cast<int32_t>(std::max<int64_t>(0, fields.integer("top_k").value_or(s.top_k)));
  take_float(fields, "min_p", s.min_p);
  take_float(fields, "presence_penalty", s.presence_penalty);
  take_float(fields, "frequency_penalty", s.frequency_penalty);
  take_float(fields, "repetition_penalty", s.repetition_penalty);
  const std::optional<int64_t> seed = fields.integer("seed");
  s.seed = static_cast<uint64_t>(seed.value_or(0));
  generation.random_seed = !seed;
  return temperature;
}

void take_shared_fields(Fields& fields, const RequestLimits& limits, CompletionRequest& request) {
  request.model = fields.string("model").value_or("");
  take_sampling(fields, limits, request);
  take_stream(fields, request.output);
  OutputOptions& output = request.output;
  request.generation.report_reading = output.progress;
  take_flag(fields, "echo", output.echo);
  take_flag(fields, "return_token_ids", output.token_ids);
  take_flag(fields, "return_tokens_as_token_ids", output.tokens_as_ids);
  request.max_tokens = fields.integer("max_tokens", output.echo ? 0 : 1, kMaxInt64);
  request.truncate_prompt = take_truncation(fields);
  if (const auto prompt_logprobs = fields.integer("prompt_logprobs")) {
    if (output.stream) fail("prompt_logprobs", "invalid_value", "cannot be had together with stream: true");
    output.prompt_logprobs = true;
    request.generation.prompt_logprobs = static_cast<int32_t>(*prompt_logprobs);
  }
}

std::optional<int64_t> take_truncation(Fields& fields) {
  const std::optional<int64_t> keep = fields.integer("truncate_prompt_tokens");
  if (keep == 0)
    fail("truncate_prompt_tokens", "invalid_value", "must be -1 (as much as the context holds) or at least 1, got 0");
  return keep;
}

void check_together(const RequestLimits& limits, size_t prompts, const CompletionRequest& request) {
  const GenerationRequest& g = request.generation;
  if (g.best_of != 0 && g.best_of < g.n)
    fail("best_of", "invalid_value", "must be at least n ({}), got {}", g.n, g.best_of);
  const int64_t choices = static_cast<int64_t>(std::max(g.n, g.best_of)) * static_cast<int64_t>(prompts);
  if (choices > limits.max_choices)
    fail(g.best_of > g.n ? "best_of" : "n", "integer_above_max_value",
         "asks for {} choices over all prompts; this server generates at most {} a request (--limit choices)", choices,
         limits.max_choices);
  if (g.beam_search && std::max(g.n, g.best_of) > limits.max_beams)
    fail(g.best_of > g.n ? "best_of" : "n", "integer_above_max_value",
         "must be at most {} with use_beam_search, got {}", limits.max_beams, std::max(g.n, g.best_of));
  if (request.max_tokens && g.sampling.min_tokens > *request.max_tokens)
    fail("min_tokens", "invalid_value", "must be at most max_tokens ({}), got {}", *request.max_tokens,
         g.sampling.min_tokens);
}

}  // namespace ingot::server::openai
