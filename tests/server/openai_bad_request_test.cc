// Bodies that must be refused with 400, and the parameter that the error must name.
#include <gtest/gtest.h>

#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

struct Bad {
  std::string body;
  std::string param;  // empty: null
};

// Each row is `more`, put behind what makes the body complete otherwise.
struct Row {
  const char* more;
  const char* param;
};

// Both endpoints refuse these.
const Row kBoth[] = {
    {R"("model":1)", "model"},
    {R"("model":["tiny"])", "model"},
    {R"("model":{"id":"tiny"})", "model"},
    {R"("model":true)", "model"},
    {R"("temperature":"1")", "temperature"},
    {R"("temperature":-0.1)", "temperature"},
    {R"("temperature":-1e308)", "temperature"},
    {R"("temperature":1e308)", "temperature"},
    {R"("temperature":101)", "temperature"},
    {R"("temperature":true)", "temperature"},
    {R"("temperature":[1])", "temperature"},
    {R"("temperature":{})", "temperature"},
    {R"("top_p":0)", "top_p"},
    {R"("top_p":-0.5)", "top_p"},
    {R"("top_p":1.01)", "top_p"},
    {R"("top_p":1e-60)", "top_p"},
    {R"("top_p":"0.5")", "top_p"},
    {R"("top_p":false)", "top_p"},
    {R"("top_k":-2)", "top_k"},
    {R"("top_k":1.5)", "top_k"},
    {R"("top_k":"40")", "top_k"},
    {R"("top_k":3000000000)", "top_k"},
    {R"("top_k":1e300)", "top_k"},
    {R"("min_p":-0.1)", "min_p"},
    {R"("min_p":1.1)", "min_p"},
    {R"("min_p":"0")", "min_p"},
    {R"("presence_penalty":2.1)", "presence_penalty"},
    {R"("presence_penalty":-2.1)", "presence_penalty"},
    {R"("presence_penalty":"x")", "presence_penalty"},
    {R"("frequency_penalty":3)", "frequency_penalty"},
    {R"("frequency_penalty":-3)", "frequency_penalty"},
    {R"("frequency_penalty":[])", "frequency_penalty"},
    {R"("repetition_penalty":0)", "repetition_penalty"},
    {R"("repetition_penalty":-1)", "repetition_penalty"},
    {R"("repetition_penalty":1e9)", "repetition_penalty"},
    {R"("repetition_penalty":"1.1")", "repetition_penalty"},
    {R"("seed":1.5)", "seed"},
    {R"("seed":"7")", "seed"},
    {R"("seed":18446744073709551615)", "seed"},
    {R"("seed":1e30)", "seed"},
    {R"("seed":true)", "seed"},
    {R"("n":0)", "n"},
    {R"("n":-1)", "n"},
    {R"("n":65)", "n"},
    {R"("n":1.5)", "n"},
    {R"("n":"2")", "n"},
    {R"("n":true)", "n"},
    {R"("n":99999999999999999999)", "n"},
    {R"("n":-99999999999999999999)", "n"},
    {R"("best_of":0)", "best_of"},
    {R"("best_of":65)", "best_of"},
    {R"("best_of":"3")", "best_of"},
    {R"("n":3,"best_of":2)", "best_of"},
    {R"("use_beam_search":1)", "use_beam_search"},
    {R"("use_beam_search":"yes")", "use_beam_search"},
    {R"("use_beam_search":true,"n":17)", "n"},
    {R"("use_beam_search":true,"best_of":17)", "best_of"},
    {R"("use_beam_search":true,"temperature":0.7)", "temperature"},
    {R"("length_penalty":0.5)", "length_penalty"},
    {R"("length_penalty":"1")", "length_penalty"},
    {R"("use_beam_search":true,"length_penalty":1e9)", "length_penalty"},
    {R"("early_stopping":true)", "early_stopping"},
    {R"("early_stopping":"never")", "early_stopping"},
    {R"("stop":1)", "stop"},
    {R"("stop":"")", "stop"},
    {R"("stop":["a",""])", "stop"},
    {R"("stop":["a",1])", "stop[1]"},
    {R"("stop":[["a"]])", "stop[0]"},
    {R"("stop":{"a":1})", "stop"},
    {R"("stop":true)", "stop"},
    {R"("bad_words":5)", "bad_words"},
    {R"("bad_words":[""])", "bad_words"},
    {R"("bad_words":[null])", "bad_words[0]"},
    {R"("stop_token_ids":7)", "stop_token_ids"},
    {R"("stop_token_ids":"7")", "stop_token_ids"},
    {R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
    {R"("stop_token_ids":[1,331])", "stop_token_ids[1]"},
    {R"("stop_token_ids":[1.5])", "stop_token_ids[0]"},
    {R"("stop_token_ids":["1"])", "stop_token_ids[0]"},
    {R"("stop_token_ids":[4294967296])", "stop_token_ids[0]"},
    {R"("allowed_token_ids":[])", "allowed_token_ids"},
    {R"("allowed_token_ids":5)", "allowed_token_ids"},
    {R"("allowed_token_ids":[331])", "allowed_token_ids[0]"},
    {R"("allowed_token_ids":[0,null])", "allowed_token_ids[1]"},
    {R"("logit_bias":[])", "logit_bias"},
    {R"("logit_bias":"1")", "logit_bias"},
    {R"("logit_bias":{"x":1})", "logit_bias.x"},
    {R"("logit_bias":{"-1":1})", "logit_bias.-1"},
    {R"("logit_bias":{"331":1})", "logit_bias.331"},
    {R"("logit_bias":{"1.0":1})", "logit_bias.1.0"},
    {R"("logit_bias":{" 1":1})", "logit_bias. 1"},
    {R"("logit_bias":{"":1})", "logit_bias."},
    {R"("logit_bias":{"99999999999999999999":1})", "logit_bias.99999999999999999999"},
    {R"("logit_bias":{"1":"a"})", "logit_bias.1"},
    {R"("logit_bias":{"1":null})", "logit_bias.1"},
    {R"("logit_bias":{"1":100.5})", "logit_bias.1"},
    {R"("logit_bias":{"1":-1e300})", "logit_bias.1"},
    {R"("logit_bias":{"1":1,"01":2})", "logit_bias"},
    {R"("min_tokens":-1)", "min_tokens"},
    {R"("min_tokens":"1")", "min_tokens"},
    {R"("min_tokens":1.25)", "min_tokens"},
    {R"("min_tokens":5000000000)", "min_tokens"},
    {R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
    {R"("max_tokens":-1)", "max_tokens"},
    {R"("max_tokens":0)", "max_tokens"},
    {R"("max_tokens":"10")", "max_tokens"},
    {R"("max_tokens":1.5)", "max_tokens"},
    {R"("max_tokens":1e19)", "max_tokens"},
    {R"("max_tokens":[10])", "max_tokens"},
    {R"("max_tokens":true)", "max_tokens"},
    {R"("priority":1.5)", "priority"},
    {R"("priority":"high")", "priority"},
    {R"("priority":1e12)", "priority"},
    {R"("ignore_eos":1)", "ignore_eos"},
    {R"("skip_special_tokens":"true")", "skip_special_tokens"},
    {R"("include_stop_str_in_output":0)", "include_stop_str_in_output"},
    {R"("add_special_tokens":"no")", "add_special_tokens"},
    {R"("echo":"yes")", "echo"},
    {R"("return_token_ids":1)", "return_token_ids"},
    {R"("return_tokens_as_token_ids":"1")", "return_tokens_as_token_ids"},
    {R"("prompt_logprobs":-1)", "prompt_logprobs"},
    {R"("prompt_logprobs":21)", "prompt_logprobs"},
    {R"("prompt_logprobs":true)", "prompt_logprobs"},
    {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
    {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
    {R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens"},
    {R"("truncate_prompt_tokens":"5")", "truncate_prompt_tokens"},
    {R"("stream":"true")", "stream"},
    {R"("stream":1)", "stream"},
    {R"("stream":[])", "stream"},
    {R"("return_progress":1,"stream":true)", "return_progress"},
    {R"("return_progress":true)", "return_progress"},
    {R"("stream_options":{"include_usage":true})", "stream_options"},
    {R"("stream":false,"stream_options":{})", "stream_options"},
    {R"("stream":true,"stream_options":true)", "stream_options"},
    {R"("stream":true,"stream_options":[])", "stream_options"},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
    {R"("stream":true,"stream_options":{"continuous_usage_stats":"x"})", "stream_options.continuous_usage_stats"},
    {R"("stream":true,"stream_options":{"foo":true})", "stream_options.foo"},
    {R"("tools":"f")", "tools"},
    {R"("functions":[{"name":"f"}])", "functions"},
    {R"("tool_choice":"required")", "tool_choice"},
    {R"("function_call":{"name":"f"})", "function_call"},
    {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
    {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format.json_schema.schema"},
    {R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})", "response_format.json_schema.schema"},
    {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}})",
     "response_format.json_schema.strict"},
    {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"x":1}})", "response_format.json_schema.x"},
    {R"("response_format":"text")", "response_format"},
    {R"("response_format":{})", "response_format.type"},
    {R"("response_format":{"type":"xml"})", "response_format.type"},
    {R"("response_format":{"type":"text","x":1})", "response_format.x"},
    {R"("structured_outputs":"x")", "structured_outputs"},
    {R"("structured_outputs":{"regex":1})", "structured_outputs.regex"},
    {R"("structured_outputs":{"json_object":1})", "structured_outputs.json_object"},
    {R"("structured_outputs":{"regex":"a","choice":["b"]})", "structured_outputs.choice"},
    {R"("structured_outputs":{"x":1})", "structured_outputs.x"},
    {R"("structured_outputs":{"regex":"a","disable_any_whitespace":true})",
     "structured_outputs.disable_any_whitespace"},
    {R"("response_format":{"type":"json_object"},"guided_json":{})", "guided_json"},
    {R"("guided_json":5)", "guided_json"},
    {R"("guided_regex":["[a-z]"])", "guided_regex"},
    {R"("guided_choice":"a")", "guided_choice"},
    {R"("guided_choice":["a",1])", "guided_choice[1]"},
    {R"("guided_grammar":{})", "guided_grammar"},
    {R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern"},
    {R"("grammar":1)", "grammar"},
    {R"("json_schema":[])", "json_schema"},
    {R"("structural_tag":1)", "structural_tag"},
    {R"("modalities":["text","audio"])", "modalities"},
    {R"("modalities":"text")", "modalities"},
    {R"("modalities":[])", "modalities"},
    {R"("audio":{"voice":"x"})", "audio"},
    {R"("web_search_options":{})", "web_search_options"},
    {R"("reasoning":{"effort":"low"})", "reasoning"},
    {R"("verbosity":"low")", "verbosity"},
    {R"("thinking_token_budget":-2)", "thinking_token_budget"},
    {R"("thinking_token_budget":"5")", "thinking_token_budget"},
    {R"("reasoning_budget":5)", "reasoning_budget"},
    {R"("chat_template":"{{ messages }}")", "chat_template"},
    {R"("mm_processor_kwargs":{"a":1})", "mm_processor_kwargs"},
    {R"("logits_processors":["x"])", "logits_processors"},
    {R"("vllm_xargs":{"a":1})", "vllm_xargs"},
    {R"("kv_transfer_params":{"a":1})", "kv_transfer_params"},
    {R"("cache_salt":5)", "cache_salt"},
    {R"("speculate":"off")", "speculate"},
    {R"("documents":[{"title":"t"}])", "documents"},
    {R"("user":1)", "user"},
    {R"("user":{"name":"x"})", "user"},
    {R"("metadata":"x")", "metadata"},
    {R"("metadata":[])", "metadata"},
    {R"("store":"yes")", "store"},
    {R"("service_tier":5)", "service_tier"},
    {R"("prediction":"x")", "prediction"},
    {R"("parallel_tool_calls":"x")", "parallel_tool_calls"},
    {R"("repeat_penalty":1.1)", "repeat_penalty"},
    {R"("n_predict":5)", "n_predict"},
    {R"("max_new_tokens":5)", "max_new_tokens"},
    {R"("mirostat":1)", "mirostat"},
    {R"("Temperature":1)", "Temperature"},
    {R"("temperature ":1)", "temperature "},
    {R"("":1)", ""},
    {R"("a\nb":1)", "a\\x0ab"},
};

const Row kChatOnly[] = {
    {R"("tools":[5])", "tools[0]"},
    {R"("tools":[{"function":{"name":"f"}}])", "tools[0].type"},
    {R"("tools":[{"type":"web_search"}])", "tools[0].type"},
    {R"("tools":[{"type":"function"}])", "tools[0].function"},
    {R"("tools":[{"type":"function","function":5}])", "tools[0].function"},
    {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
    {R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
    {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
    {R"("tools":[{"type":"function","function":{"name":"f","description":5}}])", "tools[0].function.description"},
    {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters"},
    {R"("tools":[{"type":"function","function":{"name":"f","strict":"yes"}}])", "tools[0].function.strict"},
    {R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])",
     "tools[1].function.name"},
    {R"("tool_choice":"any")", "tool_choice"},
    {R"("tool_choice":5)", "tool_choice"},
    {R"("tool_choice":{"type":"function"})", "tool_choice.function"},
    {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.type"},
    {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice.function.name"},
    {R"("reasoning_effort":"extreme")", "reasoning_effort"},
    {R"("reasoning_effort":5)", "reasoning_effort"},
    {R"("include_reasoning":"no")", "include_reasoning"},
    {R"("separate_reasoning":false)", "separate_reasoning"},
    {R"("stream_reasoning":false)", "stream_reasoning"},
    {R"("no_stop_trim":true)", "no_stop_trim"},
    {R"("logprobs":1)", "logprobs"},
    {R"("logprobs":"true")", "logprobs"},
    {R"("top_logprobs":2)", "top_logprobs"},
    {R"("logprobs":false,"top_logprobs":2)", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":-1)", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":"1")", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":1.5)", "top_logprobs"},
    {R"("max_completion_tokens":0)", "max_completion_tokens"},
    {R"("max_completion_tokens":-5)", "max_completion_tokens"},
    {R"("max_completion_tokens":"5")", "max_completion_tokens"},
    {R"("max_completion_tokens":2,"min_tokens":3)", "min_tokens"},
    {R"("echo":true,"max_tokens":0)", "max_tokens"},
    {R"("add_generation_prompt":"x")", "add_generation_prompt"},
    {R"("continue_final_message":1)", "continue_final_message"},
    {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"},
    {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
    {R"("chat_template_kwargs":"x")", "chat_template_kwargs"},
    {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages"},
    {R"("chat_template_kwargs":{"tools":[]})", "chat_template_kwargs.tools"},
    {R"("prompt":"x")", "prompt"},
    {R"("suffix":"x")", "suffix"},
};

const Row kCompletionOnly[] = {
    {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
    {R"("reasoning_effort":"low")", "reasoning_effort"},
    {R"("include_reasoning":false)", "include_reasoning"},
    {R"("thinking_token_budget":5)", "thinking_token_budget"},
    {R"("logprobs":true)", "logprobs"},
    {R"("logprobs":-1)", "logprobs"},
    {R"("logprobs":21)", "logprobs"},
    {R"("logprobs":"5")", "logprobs"},
    {R"("logprobs":2.5)", "logprobs"},
    {R"("top_logprobs":2)", "top_logprobs"},
    {R"("echo":true,"max_tokens":0,"n":2)", "n"},
    {R"("echo":true,"max_tokens":-1)", "max_tokens"},
    {R"("max_completion_tokens":5)", "max_completion_tokens"},
    {R"("messages":[{"role":"user","content":"x"}])", "messages"},
    {R"("min_tokens":17)", "min_tokens"},
    {R"("suffix":"end")", "suffix"},
    {R"("suffix":5)", "suffix"},
    {R"("add_generation_prompt":true)", "add_generation_prompt"},
    {R"("chat_template_kwargs":{"a":1})", "chat_template_kwargs"},
};

// Whole values of "messages".
const Row kMessages[] = {
    {"null", "messages"},
    {"[]", "messages"},
    {"{}", "messages"},
    {R"("hi")", "messages"},
    {"5", "messages"},
    {"[5]", "messages[0]"},
    {"[null]", "messages[0]"},
    {R"(["hi"])", "messages[0]"},
    {"[[]]", "messages[0]"},
    {"[{}]", "messages[0].role"},
    {R"([{"content":"x"}])", "messages[0].role"},
    {R"([{"role":null,"content":"x"}])", "messages[0].role"},
    {R"([{"role":"","content":"x"}])", "messages[0].role"},
    {R"([{"role":5,"content":"x"}])", "messages[0].role"},
    {R"([{"role":"user"}])", "messages[0].content"},
    {R"([{"role":"user","content":null}])", "messages[0].content"},
    {R"([{"role":"user","content":5}])", "messages[0].content"},
    {R"([{"role":"user","content":{}}])", "messages[0].content"},
    {R"([{"role":"user","content":true}])", "messages[0].content"},
    {R"([{"role":"user","content":[]}])", "messages[0].content"},
    {R"([{"role":"user","content":[5]}])", "messages[0].content[0]"},
    {R"([{"role":"user","content":[{}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":[{"type":5}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
    {R"([{"role":"user","content":[{"type":"text","text":5}]}])", "messages[0].content[0].text"},
    {R"([{"role":"user","content":[{"type":"text","text":null}]}])", "messages[0].content[0].text"},
    {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}])",
     "messages[0].content[1].type"},
    {R"([{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":[{"type":"video_url"}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":[{"type":"file"}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":"a"},{"role":"user","content":"b","name":5}])", "messages[1].name"},
    {R"([{"role":"user","content":"a","tool_calls":{}}])", "messages[0].tool_calls"},
    {R"([{"role":"assistant","tool_calls":[5]}])", "messages[0].tool_calls[0]"},
    {R"([{"role":"tool","content":"a","tool_call_id":5}])", "messages[0].tool_call_id"},
    {R"([{"role":"assistant","content":"a","audio":{"id":"x"}}])", "messages[0].audio"},
    {R"([{"role":"assistant","function_call":{"name":"f"}}])", "messages[0].function_call"},
    {R"([{"role":"alien","content":"a"}])", "messages"},  // the template's own refusal
};

// Whole values of "prompt".
const Row kPrompts[] = {
    {"null", "prompt"},
    {"5", "prompt"},
    {"{}", "prompt"},
    {"true", "prompt"},
    {"[]", "prompt"},
    {"[[]]", "prompt[0]"},
    {"[[1],[]]", "prompt[1]"},
    {"[null]", "prompt[0]"},
    {"[true]", "prompt[0]"},
    {"[{}]", "prompt[0]"},
    {R"(["a",5])", "prompt[1]"},
    {R"([5,"a"])", "prompt[1]"},
    {"[5,[6]]", "prompt[1]"},
    {"[-1]", "prompt[0]"},
    {"[331]", "prompt[0]"},
    {"[1.5]", "prompt[0]"},
    {"[99999999999999999999]", "prompt[0]"},
    {"[[1,331]]", "prompt[0][1]"},
    {R"([["a"]])", "prompt[0][0]"},
};

// Not JSON, or not an object.
const std::string kBodies[] = {
    "",
    " \r\n\t",
    "{",
    "}",
    "nonsense",
    "{\"prompt\":\"x\"",
    "{\"prompt\":\"x\"}}",
    "{\"prompt\":\"x\",}",
    "{'prompt':'x'}",
    "{prompt:1}",
    "[]",
    "[{}]",
    "\"x\"",
    "5",
    "null",
    "true",
    "{\"prompt\":\"x\",\"temperature\":NaN}",
    "{\"prompt\":\"x\",\"temperature\":Infinity}",
    "{\"prompt\":\"x\",\"temperature\":-Infinity}",
    "{\"prompt\":\"x\",\"temperature\":1e999}",
    "{\"prompt\":\"x\",\"temperature\":-1e999}",
    "{\"prompt\":\"x\",\"temperature\":01}",
    "{\"prompt\":\"x\",\"temperature\":.5}",
    "{\"prompt\":\"x\",\"temperature\":+1}",
    "{\"prompt\":\"x\",\"temperature\":0x10}",
    "{\"prompt\":\"x\",\"prompt\":\"y\"}",
    "{\"prompt\":\"x\",\"metadata\":{\"a\":1,\"a\":2}}",
    "{\"prompt\":\"\xff\"}",
    "{\"prompt\":\"\xc3(\"}",
    "{\"prompt\":\"\xed\xa0\x80\"}",
    "{\"prompt\":\"\xf8\x88\x80\x80\x80\"}",
    "{\"prompt\":\"\xc0\xaf\"}",
    "{\"prompt\":\"\\ud800\"}",
    "{\"prompt\":\"\\udc00x\"}",
    "{\"prompt\":\"\\q\"}",
    "{\"prompt\":\"\\u12g4\"}",
    "{\"prompt\":\"a\nb\"}",
    std::string("{\"prompt\":\"a\0b\"}", 16),
    std::string("\0", 1),
    "// comment\n{\"prompt\":\"x\"}",
    "{\"prompt\":\"x\"} trailing",
    "{\"prompt\":\"x\"}{\"prompt\":\"x\"}",
    "{\"prompt\":" + std::string(100000, '['),
    "{\"prompt\":" + std::string(65, '[') + std::string(65, ']') + "}",
};

std::vector<Bad> bad_chats() {
  std::vector<Bad> bad;
  const auto add = [&](const Row& row) {
    bad.push_back({R"({"messages":[{"role":"user","content":"hi"}],)" + std::string(row.more) + "}", row.param});
  };
  for (const Row& row : kBoth) add(row);
  for (const Row& row : kChatOnly) add(row);
  for (const Row& row : kMessages) bad.push_back({R"({"messages":)" + std::string(row.more) + "}", row.param});
  bad.push_back({"{}", "messages"});
  for (const std::string& body : kBodies) bad.push_back({body, ""});
  return bad;
}

std::vector<Bad> bad_completions() {
  std::vector<Bad> bad;
  const auto add = [&](const Row& row) {
    bad.push_back({R"({"prompt":"hi",)" + std::string(row.more) + "}", row.param});
  };
  for (const Row& row : kBoth) add(row);
  for (const Row& row : kCompletionOnly) add(row);
  for (const Row& row : kPrompts) bad.push_back({R"({"prompt":)" + std::string(row.more) + "}", row.param});
  bad.push_back({"{}", "prompt"});
  bad.push_back({R"({"prompt":["a","b","c"],"n":43})", "n"});  // 129 choices
  for (const std::string& body : kBodies) bad.push_back({body, ""});
  std::string many = R"({"prompt":["a")";
  for (int i = 0; i < 256; ++i) many += R"(,"a")";
  bad.push_back({many + "]}", "prompt"});
  std::string stops = R"({"prompt":"a","stop":["a")";
  for (int i = 0; i < 64; ++i) stops += R"(,"a")";
  bad.push_back({stops + "]}", "stop"});
  return bad;
}

void expect_refused(const std::string& path, const std::vector<Bad>& table) {
  Rig rig;
  for (const Bad& bad : table) {
    const std::string shown = bad.body.substr(0, 200);
    const HttpReply reply = rig.ask("POST", path, bad.body);
    EXPECT_EQ(reply.status, 400) << shown << " -> " << reply.body;
    EXPECT_EQ(reply.content_type, "application/json");
    const Json json = Json::parse(reply.body, nullptr, false);
    ASSERT_TRUE(json.is_object() && json.size() == 1 && json.contains("error")) << shown << " -> " << reply.body;
    const Json& error = json["error"];
    EXPECT_EQ(error.size(), 4u) << reply.body;
    EXPECT_EQ(error["type"], "invalid_request_error") << reply.body;
    EXPECT_EQ(error["param"], bad.param.empty() ? Json() : Json(bad.param)) << shown << " -> " << reply.body;
    EXPECT_TRUE(error["code"].is_string()) << reply.body;
    const std::string message = error.value("message", "");
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u) << message;
    if (!bad.param.empty()) {
      EXPECT_NE(message.find(bad.param), std::string::npos) << message;
    }
  }
  EXPECT_TRUE(rig.generator->generations.empty()) << "a refused request reached the model";
  EXPECT_EQ(rig.log_lines().size(), table.size());
}

TEST(OpenaiBadRequest, Chat) {
  const std::vector<Bad> table = bad_chats();
  EXPECT_GE(table.size(), 200u);
  expect_refused("/v1/chat/completions", table);
}

TEST(OpenaiBadRequest, Completions) {
  const std::vector<Bad> table = bad_completions();
  EXPECT_GE(table.size(), 200u);
  expect_refused("/v1/completions", table);
}

TEST(OpenaiBadRequest, Tokenize) {
  std::vector<Bad> table = {{"{}", "messages"},
                            {R"({"prompt":5})", "prompt"},
                            {R"({"prompt":["a"]})", "prompt"},
                            {R"({"prompt":"a","messages":[]})", "messages"},
                            {R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens"},
                            {R"({"prompt":"a","return_token_strs":"x"})", "return_token_strs"},
                            {R"({"prompt":"a","model":5})", "model"},
                            {R"({"prompt":"a","foo":5})", "foo"},
                            {R"({"messages":[{"role":"user"}]})", "messages[0].content"}};
  for (const std::string& body : kBodies) table.push_back({body, ""});
  expect_refused("/tokenize", table);
}

TEST(OpenaiBadRequest, Detokenize) {
  std::vector<Bad> table = {{"{}", "tokens"},
                            {R"({"tokens":"a"})", "tokens"},
                            {R"({"tokens":[-1]})", "tokens[0]"},
                            {R"({"tokens":[1,331]})", "tokens[1]"},
                            {R"({"tokens":[1.5]})", "tokens[0]"},
                            {R"({"tokens":[1],"foo":5})", "foo"}};
  for (const std::string& body : kBodies) table.push_back({body, ""});
  expect_refused("/detokenize", table);
}

}  // namespace
}  // namespace ingot::server::testing
