#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cpu_time.h"
#include "server/openai/body.h"
#include "server/openai/errors.h"
#include "server/openai/request.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;
constexpr RequestLimits kLimits = {.vocab = 331};

CompletionRequest chat(const char* more) {
  const std::string body = std::string(R"({"messages":[{"role":"user","content":"hi"}])") + more + "}";
  return parse_chat_request(body, kLimits);
}
CompletionRequest completion(const char* more) {
  return parse_completion_request(std::string(R"({"prompt":"hi")") + more + "}", kLimits);
}

TEST(OpenaiRequest, DefaultsOfChat) {
  const CompletionRequest request = chat("");
  const GenerationRequest& g = request.generation;
  EXPECT_FALSE(request.max_tokens);
  EXPECT_FALSE(request.output.stream);
  EXPECT_EQ(g.n, 1);
  EXPECT_EQ(g.best_of, 0);
  EXPECT_EQ(g.logprobs, -1);
  EXPECT_EQ(g.prompt_logprobs, -1);
  EXPECT_TRUE(g.random_seed);
  EXPECT_EQ(g.sampling.temperature, 1.0f);
  EXPECT_EQ(g.sampling.top_p, 1.0f);
  EXPECT_EQ(g.sampling.top_k, 0);
  EXPECT_TRUE(g.skip_special_tokens);
  EXPECT_TRUE(request.chat->add_generation_prompt);
  EXPECT_FALSE(request.chat->add_special_tokens);
}

TEST(OpenaiRequest, DefaultsOfCompletions) {
  const CompletionRequest request = completion("");
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_TRUE(request.add_special_tokens);
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "hi");
}

TEST(OpenaiRequest, EverySamplingParameterArrives) {
  const CompletionRequest request = completion(R"(,"model":"m","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,
      "presence_penalty":-1.5,"frequency_penalty":2,"repetition_penalty":1.1,"seed":-3,"logit_bias":{"7":-100,"330":2.5},
      "allowed_token_ids":[7,330],"stop_token_ids":[9],"min_tokens":2,"max_tokens":5,"stop":["a","b"],"bad_words":["c"],
      "include_stop_str_in_output":true,"ignore_eos":true,"skip_special_tokens":false,"n":2,"best_of":3,"priority":-4,
      "logprobs":3,"prompt_logprobs":4,"truncate_prompt_tokens":6,"return_token_ids":true,"add_special_tokens":false,
      "return_tokens_as_token_ids":true)");
  const GenerationRequest& g = request.generation;
  const SamplingParams& s = g.sampling;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_p, 0.9f);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.05f);
  EXPECT_EQ(s.presence_penalty, -1.5f);
  EXPECT_EQ(s.frequency_penalty, 2.0f);
  EXPECT_EQ(s.repetition_penalty, 1.1f);
  EXPECT_EQ(s.seed, static_cast<uint64_t>(-3));
  EXPECT_FALSE(g.random_seed);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, -100.0f}, {330, 2.5f}}));
  EXPECT_EQ(s.allowed_token_ids, (std::vector<int32_t>{7, 330}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<int32_t>{9}));
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(g.stop.texts(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(g.bad_words, (std::vector<std::string>{"c"}));
  EXPECT_TRUE(g.include_stop);
  EXPECT_TRUE(g.ignore_eos);
  EXPECT_FALSE(g.skip_special_tokens);
  EXPECT_EQ(g.n, 2);
  EXPECT_EQ(g.best_of, 3);
  EXPECT_EQ(g.priority, -4);
  EXPECT_EQ(g.logprobs, 3);
  EXPECT_EQ(g.prompt_logprobs, 4);
  EXPECT_EQ(request.truncate_prompt, 6);
  EXPECT_TRUE(request.output.token_ids);
  EXPECT_TRUE(request.output.tokens_as_ids);
  EXPECT_FALSE(request.add_special_tokens);
}

TEST(OpenaiRequest, EchoWithLogprobsScoresThePrompt) {
  EXPECT_EQ(completion(R"(,"echo":true,"logprobs":2)").generation.prompt_logprobs, 2);
  EXPECT_EQ(completion(R"(,"echo":true)").generation.prompt_logprobs, -1);
  EXPECT_EQ(completion(R"(,"echo":true,"max_tokens":0)").max_tokens, 0);
}

TEST(OpenaiRequest, BeamsAreGreedyUnlessToldOtherwise) {
  const CompletionRequest request =
      completion(R"(,"use_beam_search":true,"n":2,"best_of":4,"length_penalty":0.5,"early_stopping":true)");
  EXPECT_TRUE(request.generation.beam_search);
  EXPECT_EQ(request.generation.sampling.temperature, 0.0f);
  EXPECT_EQ(request.generation.length_penalty, 0.5);
  EXPECT_TRUE(request.generation.early_stopping);
}

TEST(OpenaiRequest, TinyTemperatureIsGreedy) {
  EXPECT_EQ(completion(R"(,"temperature":1e-40)").generation.sampling.temperature, 0.0f);
  EXPECT_EQ(completion(R"(,"top_k":-1)").generation.sampling.top_k, 0);
}

TEST(OpenaiRequest, PromptShapes) {
  const auto prompts = [](const char* json) {
    return parse_completion_request(std::string(R"({"prompt":)") + json + "}", kLimits).prompts;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prompts("[1,2]"), (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(prompts("[1.0]"), (std::vector<Prompt>{Ids{1}}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<Prompt>{Ids{1}, Ids{2, 3}}));
  EXPECT_EQ(prompts(R"(["a",[2]])"), (std::vector<Prompt>{std::string("a"), Ids{2}}));
  EXPECT_EQ(prompts(R"("")"), (std::vector<Prompt>{std::string()}));
}

TEST(OpenaiRequest, MessagesKeepTheirFieldsAndJoinTextParts) {
  const CompletionRequest request = parse_chat_request(
      R"({"messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
                      {"role":"assistant","tool_calls":[{"id":"1","type":"function",
                        "function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
                      {"role":"tool","content":"3","tool_call_id":"1"}],
          "chat_template_kwargs":{"enable_thinking":false}})",
      kLimits);
  const Json expected = Json::parse(
      R"([{"role":"system","content":"a\nb","name":"n"},
          {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}}],"content":null},
          {"role":"tool","content":"3","tool_call_id":"1"}])");
  EXPECT_EQ(request.chat->messages->dump(), expected.dump());
  EXPECT_EQ(request.chat->template_variables->dump(), R"({"enable_thinking":false})");
}

TEST(OpenaiRequest, MaxCompletionTokensWins) {
  EXPECT_EQ(chat(R"(,"max_completion_tokens":7)").max_tokens, 7);
  EXPECT_EQ(chat(R"(,"max_completion_tokens":7,"max_tokens":9)").max_tokens, 7);
  EXPECT_EQ(chat(R"(,"max_tokens":9)").max_tokens, 9);
}

TEST(OpenaiRequest, ContinuesTheFinalMessage) {
  const CompletionRequest request = chat(R"(,"continue_final_message":true)");
  EXPECT_TRUE(request.chat->continue_final_message);
  EXPECT_FALSE(request.chat->add_generation_prompt);
}

TEST(OpenaiRequest, HarmlessParametersAreAccepted) {
  chat(R"(,"user":"me","metadata":{"a":"b"},"store":true,"service_tier":"auto","tools":[],"tool_choice":"none",
          "functions":[],"function_call":"auto","response_format":{"type":"text"},"parallel_tool_calls":true,
          "modalities":["text"],"safety_identifier":"x","prompt_cache_key":"k","prediction":{"type":"content","content":"x"},
          "guided_regex":"","structured_outputs":{},"verbosity":"medium","include_reasoning":true,
          "stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false,"include_obfuscation":false})");
  completion(R"(,"suffix":"","user":"me","spaces_between_special_tokens":true)");
  // As routers of vLLM and SGLang hand a request on.
  chat(R"(,"stream":false,"logprobs":false,"no_stop_trim":false,"ignore_eos":false,"continue_final_message":false,
          "skip_special_tokens":true,"separate_reasoning":true,"stream_reasoning":true,"return_hidden_states":false,
          "include_reasoning":true)");
  completion(R"(,"stream":false,"echo":false,"no_stop_trim":false,"ignore_eos":false,"skip_special_tokens":true,
                "return_hidden_states":false)");
}

TEST(OpenaiRequest, StructuredOutputHasManyNames) {
  using Kind = StructuredOutput::Kind;
  struct Named {
    const char* json;
    Kind kind;
    const char* text;
    const char* param;
  };
  const Named cases[] = {
      {R"("response_format":{"type":"json_object"})", Kind::json_object, "", "response_format"},
      {R"("response_format":{"type":"json_object","schema":{"b":1,"a":2}})", Kind::json_schema, R"({"b":1,"a":2})",
       "response_format.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"null"}}})",
       Kind::json_schema, R"({"type":"null"})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"structural_tag","structures":[],"triggers":["x"]})", Kind::structural_tag,
       R"({"structures":[],"triggers":["x"]})", "response_format"},
      {R"("structured_outputs":{"json":"{}","regex":null})", Kind::json_schema, "{}", "structured_outputs.json"},
      {R"("structured_outputs":{"json":true})", Kind::json_schema, "true", "structured_outputs.json"},
      {R"("structured_outputs":{"json_object":true})", Kind::json_object, "", "structured_outputs.json_object"},
      {R"("structured_outputs":{"json_object":false})", Kind::none, "", "structured"},
      {R"("structured_outputs":{"grammar":"root ::= \"a\""})", Kind::gbnf, "root ::= \"a\"",
       "structured_outputs.grammar"},
      {R"("guided_json":{})", Kind::json_schema, "{}", "guided_json"},
      {R"("guided_regex":"[a-z]","guided_decoding_backend":"auto")", Kind::regex, "[a-z]", "guided_regex"},
      {R"("guided_choice":["a","b"])", Kind::choice, "", "guided_choice"},
      {R"("guided_choice":[])", Kind::none, "", "structured"},
      {R"("guided_grammar":"r")", Kind::gbnf, "r", "guided_grammar"},
      {R"("json_schema":{"type":"object"})", Kind::json_schema, R"({"type":"object"})", "json_schema"},
      {R"("grammar":"r")", Kind::gbnf, "r", "grammar"},
  };
  for (const Named& named : cases) {
    const StructuredOutput read = chat((std::string(",") + named.json).c_str()).generation.structured;
    EXPECT_EQ(read.kind, named.kind) << named.json;
    EXPECT_EQ(read.text, named.text) << named.json;
    EXPECT_EQ(read.param, named.param) << named.json;
    EXPECT_EQ(read.strict, std::string(named.json).find("strict") != std::string::npos);
    EXPECT_EQ(completion((std::string(",") + named.json).c_str()).generation.structured.kind, named.kind);
  }
}

TEST(OpenaiRequest, NullsAreAccepted) {
  for (const char* name : {"model",
                           "temperature",
                           "top_p",
                           "top_k",
                           "min_p",
                           "n",
                           "seed",
                           "stop",
                           "stream",
                           "stream_options",
                           "logit_bias",
                           "max_tokens",
                           "logprobs",
                           "tools",
                           "tool_choice",
                           "response_format",
                           "user",
                           "functions",
                           "audio",
                           "modalities",
                           "reasoning_effort",
                           "guided_json",
                           "grammar",
                           "stop_token_ids",
                           "bad_words",
                           "allowed_token_ids",
                           "echo",
                           "best_of",
                           "suffix",
                           "use_beam_search",
                           "a_name_nobody_knows"}) {
    const std::string more = fmt::format(",\"{}\":null", name);
    EXPECT_NO_THROW(chat(more.c_str())) << name;
    EXPECT_NO_THROW(completion(more.c_str())) << name;
  }
}

TEST(OpenaiRequest, ManyKeysTakeLinearTime) {
  std::string body = R"({"prompt":"x","metadata":{)";
  for (int i = 0; i < 300'000; ++i) body += fmt::format("{}\"k{}\":1", i == 0 ? "" : ",", i);
  body += "}}";
  const double start = test::thread_cpu_s();
  parse_completion_request(body, {.vocab = 331, .max_keys = 1'000'000});
  // Looking through all keys at each insertion would take minutes.
  EXPECT_LT(test::thread_cpu_s() - start, 60);
}

TEST(OpenaiRequest, DepthIsLimited) {
  const auto nested = [](int depth) {
    return R"({"prompt":"x","metadata":{"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}}";
  };
  EXPECT_NO_THROW(parse_completion_request(nested(kMaxDepth - 2), kLimits));
  EXPECT_THROW(parse_completion_request(nested(kMaxDepth - 1), kLimits), ApiError);
  EXPECT_THROW(parse_completion_request(nested(1'000'000), kLimits), ApiError);
}

TEST(OpenaiRequest, TooManyValuesAreRefused) {
  std::string body = "{\"prompt\":[0";
  for (size_t i = 0; i < static_cast<size_t>(kLimits.max_values); ++i) body += ",0";
  EXPECT_THROW(parse_completion_request(body + "]}", kLimits), ApiError);
}

TEST(OpenaiRequest, Tokenize) {
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":"a","return_token_strs":true})", kLimits).prompt, "a");
  const TokenizeRequest request =
      parse_tokenize_request(R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false})", kLimits);
  ASSERT_TRUE(request.chat);
  EXPECT_FALSE(request.chat->add_generation_prompt);
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1,2]})", kLimits).tokens, (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace ingot::server::openai
