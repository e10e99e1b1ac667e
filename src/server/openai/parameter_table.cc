#include <array>
#include <vector>

#include "server/anthropic/parameters.h"
#include "server/openai/parameters.h"
#include "server/responses/parameters.h"

namespace ingot::server::openai {
namespace {

constexpr int64_t kMostInteger = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostLong = std::numeric_limits<int64_t>::max(), kLeastLong = std::numeric_limits<int64_t>::min();

// Sets of endpoints.
constexpr EndpointSet kTexts = kChatEndpoint | kCompletionsEndpoint, kGenerators = kTexts | kInfillEndpoint;
constexpr EndpointSet kEveryGenerator = kGenerators | kResponsesEndpoint | kMessagesEndpoint;
constexpr EndpointSet kConversation = kChatEndpoint | kTokenizeEndpoint | kTemplateEndpoint;
constexpr EndpointSet kNoConversation = kOwnEndpoints & ~kConversation;

constexpr std::string_view kFunctions = "is not supported by this server: use tools and tool_choice";
constexpr std::string_view kChatOnly = "is not supported here: use /v1/chat/completions";
constexpr std::string_view kInfillOnly = "is not supported here: use /v1/completions with suffix";

constexpr std::string_view kPrompts =
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"string"}},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},{"type":"array","minItems":1,"items":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}}}]})";
constexpr std::string_view kMessages =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":{"role":{"type":"string","minLength":1},"content":{"anyOf":[{"type":"string"},{"type":"null"},{"type":"array","items":{"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]},"name":{"type":"string"},"tool_call_id":{"type":"string"},"tool_calls":{"type":"array","items":{"type":"object"}}}}})";
constexpr std::string_view kTools =
    R"({"type":"array","items":{"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},"function":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"description":{"type":"string"},"strict":{"type":"boolean"},"parameters":{"type":"object"}}}}}})";
constexpr std::string_view kToolChoice =
    R"({"anyOf":[{"enum":["auto","none","required"]},{"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},"function":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}}]})";
constexpr std::string_view kFormat =
    R"({"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema","structural_tag"]},"json_schema":{"type":"object"},"schema":{"type":"object"},"structures":{"type":"array"},"triggers":{"type":"array"}}})";
constexpr std::string_view kSchema = R"({"anyOf":[{"type":"object"},{"type":"string"},{"type":"boolean"}]})";
constexpr std::string_view kChoices = R"({"type":"array","items":{"type":"string"}})";
constexpr std::string_view kBiases =
    R"({"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}})";
constexpr std::string_view kStreamOptions =
    R"({"type":"object","additionalProperties":false,"properties":{"include_usage":{"type":"boolean"},"continuous_usage_stats":{"type":"boolean"},"include_obfuscation":{"type":"boolean"}}})";
constexpr std::string_view kEfforts = R"({"enum":["none","minimal","low","medium","high","xhigh"]})";
constexpr std::string_view kFiles =
    R"({"type":"array","items":{"type":"object","required":["text"],"properties":{"filename":{"type":"string"},"text":{"type":"string"}}}})";
constexpr std::string_view kDocuments =
    R"({"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}]}})";

// By subject.
constexpr auto kTable = std::to_array<Parameter>({
    {"model", kEveryEndpoint, ValueType::text, "a name that is served; may be left out"},

    // What the model is given.
    {.name = "prompt",
     .endpoints = kCompletionsEndpoint,
     .type = ValueType::other,
     .meaning = "a text, token ids, or a list of either",
     .required = true,
     .schema = kPrompts},
    {"prompt", kTokenizeEndpoint, ValueType::text, "the text, in place of messages"},
    {"prompt", kInfillEndpoint, ValueType::text, "goes on with input_prefix"},
    {"suffix", kCompletionsEndpoint, ValueType::text, "what follows the answer: the model fills the gap"},
    {.name = "messages",
     .endpoints = kChatEndpoint | kTemplateEndpoint,
     .type = ValueType::other,
     .meaning = "the conversation",
     .required = true,
     .schema = kMessages},
    {.name = "messages",
     .endpoints = kTokenizeEndpoint,
     .type = ValueType::other,
     .meaning = "a conversation, in place of prompt",
     .schema = kMessages},
    {"add_special_tokens", kConversation | kCompletionsEndpoint | kEmbeddingsEndpoint, ValueType::boolean,
     "put the model's own tokens around a text"},
    {"add_generation_prompt", kConversation, ValueType::boolean, "the prompt ends where an answer begins"},
    {"continue_final_message", kConversation, ValueType::boolean, "the answer goes on with the last message"},
    {"chat_template_kwargs", kConversation, ValueType::object, "variables of the template"},
    {.name = "truncate_prompt_tokens",
     .endpoints = kGenerators | kEmbeddingsEndpoint,
     .type = ValueType::integer,
     .meaning = "keeps so many tokens of the prompt's end; -1: as many as fit",
     .least = -1},
    {"input_prefix", kInfillEndpoint, ValueType::text, "what stands before the gap", kLeastLong, kMostLong, nullptr,
     true},
    {"input_suffix", kInfillEndpoint, ValueType::text, "what stands after it", kLeastLong, kMostLong, nullptr, true},
    {.name = "input_extra",
     .endpoints = kInfillEndpoint,
     .type = ValueType::other,
     .meaning = "files of the same project",
     .schema = kFiles},
    {.name = "input",
     .endpoints = kEmbeddingsEndpoint,
     .type = ValueType::other,
     .meaning = "a text, token ids, or a list of either",
     .required = true,
     .schema = kPrompts},
    {"query", kRerankEndpoint, ValueType::text, "what is looked for", kLeastLong, kMostLong, nullptr, true},
    {.name = "documents",
     .endpoints = kRerankEndpoint,
     .type = ValueType::other,
     .meaning = "texts, or objects with one, that are rated",
     .required = true,
     .schema = kDocuments},
    {"instruction", kRerankEndpoint, ValueType::text, "what makes a document relevant"},
    {.name = "tokens",
     .endpoints = kDetokenizeEndpoint,
     .type = ValueType::tokens,
     .meaning = "token ids",
     .required = true},

    // How it chooses tokens.
    {"temperature", kGenerators | kResponsesEndpoint, ValueType::number, "0: greedy"},
    {"top_p", kEveryGenerator, ValueType::number, "tokens that together have this probability"},
    {"top_k", kEveryGenerator, ValueType::integer, "so many most likely tokens; -1 and 0: all", -1, kMostInteger},
    {"min_p", kEveryGenerator, ValueType::number, "tokens at least so likely, in parts of the likeliest"},
    {"presence_penalty", kEveryGenerator, ValueType::number, "subtracted once for a token that was generated"},
    {"frequency_penalty", kEveryGenerator, ValueType::number, "subtracted for each time that it was"},
    {"repetition_penalty", kEveryGenerator, ValueType::number, "divides tokens of prompt and answer"},
    {"seed", kEveryGenerator, ValueType::integer, "of the random numbers"},
    {.name = "logit_bias",
     .endpoints = kGenerators,
     .type = ValueType::other,
     .meaning = "added to tokens, by their ids",
     .schema = kBiases},
    {"allowed_token_ids", kGenerators, ValueType::tokens, "no others are generated"},
    {"bad_words", kGenerators, ValueType::texts, "texts that are not generated"},
    {"use_beam_search", kTexts, ValueType::boolean, "the n best of max(n, best_of) beams"},
    {"length_penalty", kGenerators, ValueType::number, "of beams: they are ranked by logprob / length^this", -10, 10},
    {"early_stopping", kGenerators, ValueType::boolean, "of beams: ends as soon as there are enough"},

    // Where it ends.
    {"max_tokens", kGenerators, ValueType::integer, "new tokens a choice", 0},
    {"max_completion_tokens", kChatEndpoint, ValueType::integer, "the same; wins", 1},
    {"n_predict", kInfillEndpoint, ValueType::integer, "the same; -1: as many as the context holds", -1},
    {"min_tokens", kGenerators, ValueType::integer, "no end before", 0, kMostInteger},
    {"stop", kGenerators, ValueType::texts, "texts that end it"},
    {"stop_token_ids", kGenerators, ValueType::tokens, "tokens that end it"},
    {"include_stop_str_in_output", kGenerators, ValueType::boolean, "stop is part of the answer"},
    {"ignore_eos", kGenerators, ValueType::boolean, "the model's own end is none"},

    // What the answer must be.
    {.name = "response_format",
     .endpoints = kGenerators,
     .type = ValueType::other,
     .meaning = "text, a JSON object, one of a schema, tags",
     .schema = kFormat},
    {"structured_outputs", kGenerators, ValueType::object,
     "vLLM's: json, regex, choice, grammar, json_object or structural_tag"},
    {.name = "guided_json",
     .endpoints = kGenerators,
     .type = ValueType::other,
     .meaning = "a JSON schema",
     .schema = kSchema},
    {"guided_regex", kGenerators, ValueType::text, "a regular expression of the whole answer"},
    {.name = "guided_choice",
     .endpoints = kGenerators,
     .type = ValueType::other,
     .meaning = "one of these",
     .schema = kChoices},
    {"guided_grammar", kGenerators, ValueType::text, "a GBNF grammar"},
    {.name = "json_schema",
     .endpoints = kGenerators,
     .type = ValueType::other,
     .meaning = "llama-server's: a schema",
     .schema = kSchema},
    {"grammar", kGenerators, ValueType::text, "llama-server's: a GBNF grammar"},
    {.name = "structural_tag",
     .endpoints = kGenerators,
     .type = ValueType::other,
     .meaning = "free text with islands of a schema",
     .schema = kSchema},

    // Tools and reasoning.
    {.name = "tools",
     .endpoints = kConversation,
     .type = ValueType::other,
     .meaning = "functions on offer",
     .schema = kTools},
    {.name = "tool_choice",
     .endpoints = kConversation,
     .type = ValueType::other,
     .meaning = "auto, none, required, or a function",
     .schema = kToolChoice},
    {"parallel_tool_calls", kConversation, ValueType::boolean, "false: only the first call is handed on"},
    {.name = "reasoning_effort",
     .endpoints = kConversation,
     .type = ValueType::other,
     .meaning = "a variable of the template",
     .schema = kEfforts},
    {"include_reasoning", kConversation, ValueType::boolean, "false leaves reasoning out of the answer"},
    {"thinking_token_budget", kConversation, ValueType::integer, "tokens of the reasoning; -1: any number", -1,
     kMostLong},
    {"reasoning_budget_tokens", kConversation, ValueType::integer, "another name of it", -1, kMostLong},
    {"thinking_budget_tokens", kConversation, ValueType::integer, "another name of it", -1, kMostLong},

    // The answer, and how it is written.
    {.name = "n",
     .endpoints = kTexts,
     .type = ValueType::integer,
     .meaning = "choices of a prompt",
     .least = 1,
     .limit = &RequestLimits::max_n},
    {.name = "best_of",
     .endpoints = kTexts,
     .type = ValueType::integer,
     .meaning = "choices of which the n likeliest are given",
     .least = 1,
     .limit = &RequestLimits::max_n},
    {"stream", kEveryGenerator, ValueType::boolean, "the answer as server-sent events"},
    {"return_progress", kTexts, ValueType::boolean, "with stream: how much of the prompt was read"},
    {.name = "stream_options",
     .endpoints = kTexts,
     .type = ValueType::other,
     .meaning = "with stream",
     .schema = kStreamOptions},
    {"echo", kTexts, ValueType::boolean, "the prompt (chat: the last message) comes first"},
    {"logprobs", kChatEndpoint, ValueType::boolean, "of the answer's tokens"},
    {.name = "logprobs",
     .endpoints = kCompletionsEndpoint,
     .type = ValueType::integer,
     .meaning = "of the answer's tokens, and so many alternatives",
     .least = 0,
     .limit = &RequestLimits::max_logprobs},
    {.name = "top_logprobs",
     .endpoints = kChatEndpoint,
     .type = ValueType::integer,
     .meaning = "alternatives, with logprobs",
     .least = 0,
     .limit = &RequestLimits::max_logprobs},
    {.name = "prompt_logprobs",
     .endpoints = kTexts,
     .type = ValueType::integer,
     .meaning = "of the prompt's tokens, and so many alternatives",
     .least = 0,
     .limit = &RequestLimits::max_logprobs},
    {"speculate", kGenerators, ValueType::boolean, "false: no tokens are guessed; the answer is the same"},
    {"skip_special_tokens", kGenerators, ValueType::boolean, "special tokens leave no text"},
    {"return_token_ids", kGenerators, ValueType::boolean, "ids beside the text"},
    {"return_tokens_as_token_ids", kGenerators, ValueType::boolean, "logprobs name tokens by their ids"},
    {"return_token_strs", kTokenizeEndpoint, ValueType::boolean, "texts of the tokens, too"},
    {"response_fields", kInfillEndpoint, ValueType::texts, "what of the answer is wanted"},
    {.name = "encoding_format",
     .endpoints = kEmbeddingsEndpoint,
     .type = ValueType::other,
     .meaning = "float or base64",
     .schema = R"({"enum":["float","base64"]})"},
    {"dimensions", kEmbeddingsEndpoint, ValueType::integer, "the front of the vectors, at length 1 again", 1},
    {"top_n", kRerankEndpoint, ValueType::integer, "so many of the best", 1},
    {"return_documents", kRerankEndpoint, ValueType::boolean, "texts beside the scores"},

    // Its place among others.
    {"priority", kGenerators, ValueType::integer, "lower runs first", -kMostInteger, kMostInteger},
    {"cache_salt", kGenerators, ValueType::text, "prompts meet in the prefix cache only under the same salt"},

    // Accepted, without effect.
    {.name = "user", .endpoints = kOwnEndpoints, .type = ValueType::text, .off = Off::always},
    {.name = "safety_identifier", .endpoints = kOwnEndpoints, .type = ValueType::text, .off = Off::always},
    {.name = "metadata", .endpoints = kOwnEndpoints, .type = ValueType::object, .off = Off::always},
    {.name = "store", .endpoints = kOwnEndpoints, .type = ValueType::boolean, .off = Off::always},
    {.name = "service_tier", .endpoints = kOwnEndpoints, .type = ValueType::text, .off = Off::always},
    {.name = "prompt_cache_key", .endpoints = kOwnEndpoints, .type = ValueType::text, .off = Off::always},
    {.name = "prompt_cache_retention", .endpoints = kOwnEndpoints, .type = ValueType::text, .off = Off::always},
    {.name = "prediction",
     .endpoints = kOwnEndpoints,
     .type = ValueType::object,
     .off = Off::always},  // helps speed only
    {.name = "request_id",
     .endpoints = kOwnEndpoints,
     .type = ValueType::text,
     .off = Off::always},  // X-Request-Id names one here
    {.name = "spaces_between_special_tokens",
     .endpoints = kOwnEndpoints,
     .type = ValueType::boolean,
     .off = Off::always},
    {.name = "parallel_tool_calls", .endpoints = kNoConversation, .type = ValueType::boolean, .off = Off::always},
    {.name = "guided_decoding_backend",
     .endpoints = kOwnEndpoints,
     .type = ValueType::text,
     .off = Off::always},  // there is one
    // Hints of llama-server's clients.
    {.name = "id_slot", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::always},
    {.name = "n_indent", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::always},
    {.name = "n_keep", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::always},
    {.name = "n_cache_reuse", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::always},
    {.name = "t_max_prompt_ms", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::always},
    {.name = "t_max_predict_ms", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::always},
    {.name = "cache_prompt", .endpoints = kInfillEndpoint, .type = ValueType::boolean, .off = Off::always},
    {.name = "samplers", .endpoints = kInfillEndpoint, .type = ValueType::texts, .off = Off::always},

    // Accepted when they say "off".
    {.name = "functions", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty, .hint = kFunctions},
    {.name = "function_call",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::no_choice,
     .hint = kFunctions},
    {.name = "tools", .endpoints = kNoConversation, .type = ValueType::other, .off = Off::empty, .hint = kChatOnly},
    {.name = "tool_choice",
     .endpoints = kNoConversation,
     .type = ValueType::other,
     .off = Off::no_choice,
     .hint = kChatOnly},
    {.name = "reasoning_effort",
     .endpoints = kNoConversation,
     .type = ValueType::other,
     .off = Off::never,
     .hint = kChatOnly},
    {.name = "include_reasoning",
     .endpoints = kNoConversation,
     .type = ValueType::other,
     .off = Off::is_true,
     .hint = kChatOnly},
    {.name = "n", .endpoints = kInfillEndpoint, .type = ValueType::integer, .off = Off::never, .hint = kInfillOnly},
    {.name = "best_of",
     .endpoints = kInfillEndpoint,
     .type = ValueType::integer,
     .off = Off::never,
     .hint = kInfillOnly},
    {.name = "use_beam_search",
     .endpoints = kInfillEndpoint,
     .type = ValueType::boolean,
     .off = Off::is_false,
     .hint = kInfillOnly},
    {.name = "echo",
     .endpoints = kInfillEndpoint,
     .type = ValueType::boolean,
     .off = Off::is_false,
     .hint = kInfillOnly},
    {.name = "prompt_logprobs",
     .endpoints = kInfillEndpoint,
     .type = ValueType::integer,
     .off = Off::never,
     .hint = kInfillOnly},
    {.name = "stream_options",
     .endpoints = kInfillEndpoint,
     .type = ValueType::object,
     .off = Off::empty,
     .hint = kInfillOnly},
    {.name = "guided_whitespace_pattern",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::empty,
     .hint = "is not supported by this server: white space is what JSON allows"},
    {.name = "modalities",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::text_only,
     .hint = "is not supported by this server except as [\"text\"]"},
    {.name = "audio", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "web_search_options", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::never},
    {.name = "reasoning", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "thinking_token_budget",
     .endpoints = kNoConversation,
     .type = ValueType::other,
     .off = Off::never,
     .hint = kChatOnly},
    {.name = "reasoning_budget_tokens",
     .endpoints = kNoConversation,
     .type = ValueType::other,
     .off = Off::never,
     .hint = kChatOnly},
    {.name = "thinking_budget_tokens",
     .endpoints = kNoConversation,
     .type = ValueType::other,
     .off = Off::never,
     .hint = kChatOnly},
    {.name = "verbosity", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::medium},
    {.name = "moderation", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "suffix",
     .endpoints = kOwnEndpoints & ~kCompletionsEndpoint,
     .type = ValueType::other,
     .off = Off::empty,
     .hint = "is not supported here: use /v1/completions or /infill"},
    {.name = "chat_template",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::never,
     .hint = "is not taken from requests: the template comes with the model"},
    {.name = "documents",
     .endpoints = kOwnEndpoints & ~kRerankEndpoint,
     .type = ValueType::other,
     .off = Off::empty,
     .hint = "is not supported: put the documents into a message"},
    {.name = "mm_processor_kwargs", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "media_io_kwargs", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "prompt_embeds", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "logits_processors", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "vllm_xargs", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "kv_transfer_params", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "lora_request", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::empty},
    {.name = "return_hidden_states", .endpoints = kOwnEndpoints, .type = ValueType::other, .off = Off::is_false},
    // SGLang's; routers of vLLM and SGLang write them into every request.
    {.name = "separate_reasoning",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::is_true,
     .hint = "is not supported by this server except as true: reasoning has a field of its own"},
    {.name = "stream_reasoning",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::is_true,
     .hint = "is not supported by this server except as true: use include_reasoning"},
    {.name = "no_stop_trim",
     .endpoints = kOwnEndpoints,
     .type = ValueType::other,
     .off = Off::is_false,
     .hint = "is not supported by this server: use include_stop_str_in_output"},
});

}  // namespace

std::span<const Parameter> parameter_table() {
  static const std::vector<Parameter> table = [] {
    std::vector<Parameter> all(kTable.begin(), kTable.end());
    for (const std::span<const Parameter> own : {responses::own_parameters(), anthropic::own_parameters()})
      all.insert(all.end(), own.begin(), own.end());
    return all;
  }();
  return table;
}

const Parameter* find_parameter(std::string_view name, EndpointSet endpoint) {
  for (const Parameter& parameter : parameter_table())
    if (parameter.name == name && (parameter.endpoints & endpoint) != 0) return &parameter;
  return nullptr;
}

}  // namespace ingot::server::openai
