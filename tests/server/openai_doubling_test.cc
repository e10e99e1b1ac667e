// What a request costs is linear in its size: twice of any field takes at most 2.6 times as long on the host, whether
// it is served or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <regex>
#include <set>
#include <span>
#include <sstream>

#include "server/openai/parameters.h"
#include "server/openai_rig.h"
#include "soak.h"

namespace ingot::server::testing {
namespace {

constexpr double kMost = 2.6;
constexpr double kLong = 0.5;  // seconds: no accident

double cpu_s() {  // of all threads: whole answers are put together on others
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Field {
  std::string name;
  const char* path;
  int64_t size;                            // of the smaller one
  std::function<Json(int64_t size)> body;  // grows by one thing only
};

Json user(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }
std::string repeat(const std::string& text, int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += text;
  return out;
}
Json many_keys(int64_t count) {
  Json::object_t::Container members;
  for (int64_t i = 0; i < count; ++i) members.emplace_back("k" + std::to_string(i), i);
  Json object = Json::object();
  static_cast<Json::object_t::Container&>(object.get_ref<Json::object_t&>()) = std::move(members);
  return object;
}
Json with(const char* name, Json value) {
  Json body = {{"prompt", "a"}, {"max_tokens", 1}};
  body[name] = std::move(value);
  return body;
}
Json chat_with(const char* name, Json value) {
  Json body = {{"messages", user("a")}, {"max_tokens", 1}};
  body[name] = std::move(value);
  return body;
}
template <typename Value>
Json list_of(int64_t count, const Value& value) {
  return Json(std::vector<Value>(static_cast<size_t>(count), value));
}

std::vector<Field> fields() {
  std::vector<Field> all;
  const auto text = [&](const char* name, int64_t size, std::function<Json(int64_t)> value) {
    all.push_back({name, kText, size, [name, value = std::move(value)](int64_t n) {
                     return with(std::string(name).substr(0, std::string(name).find(' ')).c_str(), value(n));
                   }});
  };
  for (const auto& [name, piece] : {std::pair("prompt letters", "a"), std::pair("prompt words", "hello "),
                                    std::pair("prompt spaces", " "), std::pair("prompt accents", "\u0301"),
                                    std::pair("prompt special", "<|im_start|>"), std::pair("prompt euros", "\u20ac")})
    text(name, 60'000, [piece](int64_t n) { return Json(repeat(piece, n)); });
  text("prompt ids", 100'000, [](int64_t n) { return list_of(n, 7); });
  text("prompt texts", 100, [](int64_t n) { return list_of<std::string>(n, repeat("hello ", 200)); });
  text("stop many", 32, [](int64_t n) { return list_of<std::string>(n, std::string(1000, 'a')); });
  text("stop long", 500'000, [](int64_t n) { return Json(std::string(static_cast<size_t>(n), 'a')); });
  text("bad_words many", 100, [](int64_t n) { return list_of<std::string>(n, repeat("hello ", 100)); });
  text("logit_bias ids", 20'000, [](int64_t n) {
    Json biases = Json::object();
    static_cast<Json::object_t::Container&>(biases.get_ref<Json::object_t&>()) = [&] {
      Json::object_t::Container members;
      for (int64_t i = 0; i < n; ++i) members.emplace_back(std::to_string(i), 1);
      return members;
    }();
    return biases;
  });
  text("allowed_token_ids ids", 50'000, [](int64_t n) { return list_of(n, 7); });
  text("stop_token_ids ids", 50'000, [](int64_t n) { return list_of(n, 7); });
  text("cache_salt text", 500'000, [](int64_t n) { return Json(std::string(static_cast<size_t>(n), 's')); });
  text("metadata keys", 20'000, many_keys);
  text("user text", 500'000, [](int64_t n) { return Json(std::string(static_cast<size_t>(n), 'u')); });
  text("model text", 500'000, [](int64_t n) { return Json(std::string(static_cast<size_t>(n), 'm')); });
  all.push_back({"unknown names", kText, 20'000, [](int64_t n) {
                   Json body = many_keys(n);
                   static_cast<Json::object_t::Container&>(body.get_ref<Json::object_t&>()).emplace_back("prompt", "a");
                   return body;
                 }});
  const auto chat = [&](const char* name, int64_t size, std::function<Json(int64_t)> messages) {
    all.push_back({name, kChat, size, [messages = std::move(messages)](int64_t n) {
                     return Json{{"messages", messages(n)}, {"max_tokens", 1}};
                   }});
  };
  chat("content", 60'000, [](int64_t n) { return user(repeat("hello ", n)); });
  chat("messages", 5'000, [](int64_t n) {
    Json messages = Json::array();
    for (int64_t i = 0; i < n; ++i) messages.push_back({{"role", "user"}, {"content", "hello"}});
    return messages;
  });
  chat("parts", 5'000, [](int64_t n) {
    Json parts = Json::array();
    for (int64_t i = 0; i < n; ++i) parts.push_back({{"type", "text"}, {"text", "hello"}});
    return Json::array({{{"role", "user"}, {"content", parts}}});
  });
  chat("role", 300'000,
       [](int64_t n) { return Json::array({{{"role", std::string(static_cast<size_t>(n), 'r')}, {"content", "a"}}}); });
  chat("keys of a message", 10'000, [](int64_t n) {
    Json message = many_keys(n);
    auto& members = static_cast<Json::object_t::Container&>(message.get_ref<Json::object_t&>());
    members.emplace_back("role", "user");
    members.emplace_back("content", "a");
    members.emplace_back("reasoning", "why");
    return Json::array({message});
  });
  chat("tool calls", 3'000, [](int64_t n) {
    Json calls = Json::array();
    for (int64_t i = 0; i < n; ++i) calls.push_back({{"function", {{"name", "f"}, {"arguments", R"({"a":1})"}}}});
    return Json::array({{{"role", "assistant"}, {"content", "a"}, {"tool_calls", calls}}});
  });
  chat("arguments", 100'000, [](int64_t n) {
    const Json call = {{"function", {{"name", "f"}, {"arguments", "[" + repeat("1,", n) + "1]"}}}};
    return Json::array({{{"role", "assistant"}, {"content", "a"}, {"tool_calls", Json::array({call})}}});
  });
  const auto items = [&](const char* name, int64_t size, const Json& item) {
    all.push_back({name, "/v1/responses", size, [item](int64_t n) {
                     return Json{{"input", list_of(n, item)}, {"max_output_tokens", 1}, {"stream", true}};
                   }});
  };
  items("items: messages", 5'000, {{"role", "user"}, {"content", "hello"}});
  items("items: calls", 3'000, Json::parse(R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})"));
  items("items: results", 3'000, Json::parse(R"({"type":"function_call_output","call_id":"c","output":"hello"})"));
  items("items: reasoning", 3'000,
        Json::parse(R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"hello"}]})"));
  items("items: system", 3'000, {{"role", "system"}, {"content", "hello"}});
  const auto blocks = [&](const char* name, const char* role, const Json& block) {
    all.push_back({name, "/v1/messages", 3'000, [role, block](int64_t n) {
                     return Json{{"max_tokens", 1},
                                 {"messages", Json::array({{{"role", role}, {"content", list_of(n, block)}}})}};
                   }});
  };
  blocks("blocks: text", "user", {{"type", "text"}, {"text", "hello"}});
  blocks("blocks: results", "user", Json::parse(R"({"type":"tool_result","tool_use_id":"t","content":"hello"})"));
  blocks("blocks: calls", "assistant", Json::parse(R"({"type":"tool_use","id":"t","name":"f","input":{"a":1}})"));
  blocks("blocks: thinking", "assistant", {{"type", "thinking"}, {"thinking", "hello"}});
  all.push_back({"messages of users", "/v1/messages", 5'000, [](int64_t n) {
                   return Json{{"max_tokens", 1},
                               {"messages", list_of<Json>(n, {{"role", "user"}, {"content", "hello"}})}};
                 }});
  for (const auto& [path, schema] : {std::pair("/v1/responses", "parameters"), {"/v1/messages", "input_schema"}})
    all.push_back({"flat tools", path, 1'000, [schema = schema](int64_t n) {
                     Json tools = Json::array();
                     for (int64_t i = 0; i < n; ++i)
                       tools.push_back({{"name", "f" + std::to_string(i)}, {schema, {{"type", "object"}}}});
                     if (std::string_view(schema) == "parameters")
                       for (Json& tool : tools) tool["type"] = "function";
                     return Json{{"input", "a"}, {"tools", tools}};
                   }});
  all.push_back({"chat_template_kwargs keys", kChat, 20'000,
                 [](int64_t n) { return chat_with("chat_template_kwargs", many_keys(n)); }});
  all.push_back({"chat_template_kwargs text", kChat, 60'000,
                 [](int64_t n) { return chat_with("chat_template_kwargs", {{"greeting", repeat("hello ", n)}}); }});
  all.push_back({"tokenize text", "/tokenize", 60'000,
                 [](int64_t n) { return Json{{"prompt", repeat("hello ", n)}, {"return_token_strs", true}}; }});
  all.push_back({"tokenize messages", "/tokenize", 5'000, [](int64_t n) {
                   Json messages = Json::array();
                   for (int64_t i = 0; i < n; ++i) messages.push_back({{"role", "user"}, {"content", "hello"}});
                   return Json{{"messages", messages}};
                 }});
  all.push_back({"apply-template content", "/apply-template", 60'000,
                 [](int64_t n) { return Json{{"messages", user(repeat("hello ", n))}}; }});
  for (const char* name : {"input_prefix", "input_suffix", "prompt"})
    all.push_back({std::string("infill ") + name, "/infill", 60'000, [name](int64_t n) {
                     Json body = {{"input_prefix", "a"}, {"input_suffix", "c"}};
                     body[name] = repeat("hello ", n);
                     return body;
                   }});
  all.push_back({"infill input_extra", "/infill", 500, [](int64_t n) {
                   return Json{{"input_prefix", "a"},
                               {"input_suffix", "c"},
                               {"input_extra", list_of<Json>(n, {{"filename", "f"}, {"text", repeat("hello ", 50)}})}};
                 }});
  all.push_back({"embeddings texts", "/v1/embeddings", 500,
                 [](int64_t n) { return Json{{"input", list_of<std::string>(n, repeat("hello ", 50))}}; }});
  all.push_back(
      {"embeddings text", "/v1/embeddings", 60'000, [](int64_t n) { return Json{{"input", repeat("hello ", n)}}; }});
  all.push_back({"rerank documents", "/rerank", 500, [](int64_t n) {
                   return Json{{"query", "a"}, {"documents", list_of<std::string>(n, repeat("hello ", 50))}};
                 }});
  all.push_back({"rerank query", "/rerank", 60'000, [](int64_t n) {
                   return Json{{"query", repeat("hello ", n)}, {"documents", list_of<std::string>(1, "b")}};
                 }});
  all.push_back(
      {"detokenize ids", "/detokenize", 100'000, [](int64_t n) { return Json{{"tokens", list_of(n, 262)}}; }});
  return all;
}

// Every name that an API of the server takes or knows of: of the table, and within objects, read out of the sources.
std::set<std::string> parameter_names(const std::string& folder) {
  const std::regex pattern(
      R"re((?:(?:take|boolean|integer|number|string|strings|tokens|required)\(|take_(?:flag|float)\(\w+, |\{(?="\w+", (?:Kind::|")))"([a-z_]+)"[,)])re");
  const openai::EndpointSet endpoints = folder == "openai"      ? openai::kOwnEndpoints
                                        : folder == "responses" ? openai::kResponsesEndpoint
                                                                : openai::kMessagesEndpoint;
  std::set<std::string> names;
  for (const openai::Parameter& parameter : openai::parameter_table())
    if ((parameter.endpoints & endpoints) != 0) names.insert(std::string(parameter.name));
  for (const auto& file : std::filesystem::directory_iterator(INGOT_FIXTURES "/../../src/server/" + folder)) {
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator match(source.begin(), source.end(), pattern), end; match != end; ++match)
      names.insert((*match)[1]);
  }
  return names;
}

// Whatever a name stands for, it may be sent with a long text, a long list or many keys; to any endpoint. What reads a
// field is shared: each name has one of the shapes, and those of OpenAI's completions one of the two; in the long form
// of the suite all.
std::vector<Field> parameters() {
  struct Shape {
    const char* name;
    int64_t size;
    Json (*value)(int64_t);
  };
  constexpr Shape kShapes[] = {
      {"text", 200'000, [](int64_t n) { return Json(std::string(static_cast<size_t>(n), 'x')); }},
      {"list", 8'000, [](int64_t n) { return list_of(n, 7); }},
      {"keys", 3'000, many_keys}};
  struct Api {
    const char* folder;
    const char* path;
    Json least;
  };
  const std::vector<Api> apis = {{"responses", "/v1/responses", {{"input", "a"}, {"max_output_tokens", 1}}},
                                 {"anthropic", "/v1/messages", {{"messages", user("a")}, {"max_tokens", 1}}},
                                 {"openai", kChat, chat_with("max_tokens", 1)},
                                 {"openai", kText, with("max_tokens", 1)}};
  std::vector<Field> all;
  for (size_t i = 0; i < apis.size(); ++i) {
    const bool completions = std::string_view(apis[i].folder) == "openai";
    size_t next = 0;
    for (const std::string& name : parameter_names(apis[i].folder)) {
      const size_t turn = next++;
      if (!test::soak() && completions && turn % 2 != i % 2) continue;
      for (const Shape& shape : test::soak() ? std::span<const Shape>(kShapes) : std::span(&kShapes[turn / 2 % 3], 1))
        all.push_back({name + " as " + shape.name, apis[i].path, shape.size, [=, body = apis[i].least](int64_t n) {
                         Json changed = body;
                         changed[name] = shape.value(n);
                         return changed;
                       }});
    }
  }
  return all;
}

class OpenaiDoubling : public ::testing::Test {
 protected:
  OpenaiDoubling()
      : rig_({.limits = {.max_choices = 4096,
                         .max_prompts = 4096,
                         .max_inputs = 4096,
                         .max_stop = 4096,
                         .max_stop_bytes = 4 << 20}}) {
    rig_.generator->limits_now.max_model_len = int64_t{1} << 30;  // whatever is sent fits
    rig_.generator->tokenizer_now = tiny_tokenizer(true);
    rig_.generator->limits_now.pooling.kind = Pooling::Kind::last;
    rig_.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
    rig_.api->attach(rig_.generator);
  }

  // The least time of so many rounds for a body and for another, which take turns: what disturbs the machine disturbs
  // both.
  std::pair<double, double> least(const Field& field, const std::string& once, const std::string& twice, int rounds) {
    double first = std::numeric_limits<double>::max(), second = first;
    for (int round = 0; round < rounds; ++round) {
      first = std::min(first, time(field, once));
      second = std::min(second, time(field, twice));
      if (second > kLong) break;
    }
    return {first, second};
  }

  // A table that grew just then, or a neighbour that took the cache, makes one size look bad; work that is quadratic
  // takes four times as long at every size.
  void expect_linear(const Field& field) {
    std::string seen;
    const int64_t least_size = test::soak() ? field.size : field.size / 2;
    for (int64_t size = least_size; size <= 4 * least_size; size *= 2) {
      const std::string once = field.body(size).dump(), twice = field.body(2 * size).dump();
      double first = 0, second = 0;
      for (const int rounds : {1, 5}) {
        std::tie(first, second) = least(field, once, twice, rounds);
        if (second <= kMost * first) return;
      }
      seen += " " + std::to_string(first * 1e3) + " ms and " + std::to_string(second * 1e3) + ";";
      if (second > kLong) break;
    }
    ADD_FAILURE() << field.path << ", " << field.name << ":" << seen;
  }

 private:
  double time(const Field& field, const std::string& body) {
    rig_.generator->generations.clear();
    const double start = cpu_s();
    rig_.ask("POST", field.path, body);
    const double seconds = cpu_s() - start;
    EXPECT_LT(seconds, 2.0) << field.name;
    return seconds;
  }

  Rig rig_;
};

TEST_F(OpenaiDoubling, TwiceOfAnyFieldTakesTwiceAsLong) {
  if (test::kSanitized) GTEST_SKIP() << "times of a sanitizer mean nothing";
  for (const Field& field : fields()) {
    expect_linear(field);
    if (HasFailure()) return;  // what grows too fast takes its time
  }
}

TEST_F(OpenaiDoubling, WhateverIsSentAsAParameterTakesTimeLinearInIt) {
  if (test::kSanitized) GTEST_SKIP() << "times of a sanitizer mean nothing";
  EXPECT_THAT(parameter_names("responses"),
              ::testing::IsSupersetOf({"input", "previous_response_id", "instructions", "background", "include"}));
  EXPECT_THAT(parameter_names("anthropic"),
              ::testing::IsSupersetOf({"system", "messages", "stop_sequences", "thinking", "container"}));
  const std::set<std::string> names = parameter_names("openai");
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"messages", "stop", "temperature", "logit_bias", "echo", "stream_options",
                                       "max_completion_tokens", "tokens", "tools", "guided_regex", "n_predict"}));
  EXPECT_GT(names.size(), 90u);
  for (const Field& field : parameters()) {
    expect_linear(field);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ingot::server::testing
