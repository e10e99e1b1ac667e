#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "cpu_time.h"

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The time that scripts/make_template_goldens.py uses.
std::tm golden_time() {
  std::tm t{};
  t.tm_year = 2025 - 1900;
  t.tm_mon = 2;
  t.tm_mday = 9;
  t.tm_hour = 14;
  t.tm_min = 5;
  t.tm_sec = 6;
  t.tm_wday = 0;
  t.tm_yday = 67;
  return t;
}

Json render(const ChatTemplate& chat, const Json& conversation, bool prompt) {
  ChatTemplateOptions options;
  options.add_generation_prompt = prompt;
  options.continue_final_message = conversation.value("continue_final_message", false);
  if (conversation.contains("tools")) options.tools = &conversation["tools"];
  if (conversation.contains("extra")) options.extra = &conversation["extra"];
  options.now = golden_time();
  try {
    return {{"text", chat.render(conversation["messages"], options)}};
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::bad_call) << e.what();
    return {{"error", e.what()}};
  }
}

void expect_result(const Json& expected, const Json& got) {
  if (expected.contains("text")) {
    ASSERT_TRUE(got.contains("text")) << got["error"];
    EXPECT_EQ(got["text"].get<std::string>(), expected["text"].get<std::string>());
  } else {
    ASSERT_TRUE(got.contains("error")) << "expected " << expected << " but got " << got["text"];
    EXPECT_NE(got["error"].get<std::string>().find(expected.value("message", "")), std::string::npos)
        << "expected " << expected << " but got " << got["error"];
  }
}

// Goldens of another folder of templates, e.g. made with make_template_goldens.py --local, can be named in the
// environment.
const char* from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

TEST(ChatTemplate, RealTemplatesEqualHuggingFace) {
  const std::string folder = from_environment("INGOT_TEMPLATES", INGOT_FIXTURES "/templates");
  const Json golden = Json::parse(
      read_file(from_environment("INGOT_TEMPLATE_GOLDENS", INGOT_FIXTURES "/templates/conversations.json")));
  ASSERT_GE(golden["cases"].size(), 300u);
  std::map<std::string, ChatTemplate> templates;
  for (const auto& c : golden["cases"]) {
    const std::string name = c["t"];
    SCOPED_TRACE(name + ", " + c["c"].get<std::string>());
    if (!templates.contains(name)) {
      const std::string source = read_file(folder + "/" + name + ".jinja");
      ASSERT_FALSE(source.empty());
      templates.emplace(name, ChatTemplate(source, "<s>", "</s>"));
    }
    const ChatTemplate& chat = templates.at(name);
    const Json& conversation = golden["conversations"][c["c"].get<std::string>()];
    Json without = c.value("no_prompt", c.value("prompt", Json()));
    if (c.contains("prompt")) expect_result(c["prompt"], render(chat, conversation, true));
    if (without.contains("bytes_of_prompt"))
      without = {{"text", c["prompt"]["text"].get<std::string>().substr(0, without["bytes_of_prompt"])}};
    expect_result(without, render(chat, conversation, false));
  }
}

TEST(ChatTemplate, RefusesWhatIsNotAConversation) {
  const ChatTemplate chat("{{ messages[0].content }}", "", "");
  const auto error_of = [&](const Json& messages, const ChatTemplateOptions& options = {}) {
    try {
      return "no error: " + chat.render(messages, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::bad_call);
      return std::string(e.what());
    }
  };
  const Json text = "x";
  EXPECT_EQ(error_of(text), "messages: expected an array, got string");
  EXPECT_EQ(error_of(Json::array({Json::object(), 5})), "messages[1]: expected an object, got number");
  ChatTemplateOptions options;
  options.tools = &text;
  EXPECT_EQ(error_of(Json::array(), options), "tools: expected an array, got string");
  options.tools = nullptr;
  options.extra = &text;
  EXPECT_EQ(error_of(Json::array(), options), "template variables: expected an object, got string");
  options.extra = nullptr;
  options.continue_final_message = true;
  EXPECT_NE(error_of(Json::array(), options).find("exclude each other"), std::string::npos);
  options.add_generation_prompt = false;
  EXPECT_NE(error_of(Json::array(), options).find("no content to continue"), std::string::npos);
  EXPECT_NE(error_of({{{"role", "user"}, {"content", {{{"type", "image"}}}}}}, options).find("no text"),
            std::string::npos);
  Json deep = 1;
  for (int i = 0; i < 500; ++i) deep = Json::array({deep});
  EXPECT_NE(error_of({{{"content", deep}}}).find("nests deeper"), std::string::npos);
  EXPECT_NE(error_of({{{"content", 18446744073709551615u}}}).find("63 bits"), std::string::npos);
}

TEST(ChatTemplate, ExtraVariablesComeAfterTheTokensAndBeforeTheConversation) {
  const ChatTemplate chat(
      "{{ bos_token }}{{ eos_token }}{{ messages|length }}{{ tools }}{{ add_generation_prompt }}{{ x }}", "B", "E");
  const Json extra = {{"bos_token", "b"}, {"messages", "m"}, {"tools", "t"}, {"add_generation_prompt", 5}, {"x", 1}};
  ChatTemplateOptions options;
  options.extra = &extra;
  EXPECT_EQ(chat.render(Json::array(), options), "bE0NoneTrue1");
}

// A look through all of them for each of them, and for each name in the template, took half a minute.
TEST(ChatTemplate, ManyExtraVariablesAreFoundByTheirHash) {
  const ChatTemplate chat("{% for i in range(20000) %}{{ k99999 }}{% endfor %}{{ k7 }}{{ eos_token }}", "B", "E");
  Json::object_t::Container members;
  for (int i = 0; i < 100'000; ++i) members.emplace_back("k" + std::to_string(i), i % 10);
  Json extra = Json::object();
  static_cast<Json::object_t::Container&>(extra.get_ref<Json::object_t&>()) = std::move(members);
  ChatTemplateOptions options;
  options.extra = &extra;
  const double start = test::thread_cpu_s();
  EXPECT_EQ(chat.render(Json::array(), options), std::string(20000, '9') + "7E");
  EXPECT_LT(test::thread_cpu_s() - start, 5);
}

TEST(ChatTemplate, EndsWhenNobodyWaitsForIt) {
  const ChatTemplate chat("{% macro m() %}{% endmacro %}{% for a in range(99999) %}{{ a }}{% endfor %}", "", "");
  std::atomic<bool> cancelled{true};
  ChatTemplateOptions options;
  options.cancelled = &cancelled;
  try {
    chat.render(Json::array(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

TEST(ChatTemplate, TheTimeIsTheLocalTimeUnlessGiven) {
  const ChatTemplate chat("{{ strftime_now('%Y') }}", "", "");
  EXPECT_GE(std::stoi(chat.render(Json::array())), 2024);
}

TEST(ChatTemplate, ThreadsCanShareOne) {
  const ChatTemplate chat(read_file(INGOT_FIXTURES "/templates/qwen3-0.6b.jinja"), "", "");
  const Json messages = {{{"role", "user"}, {"content", "Hi"}},
                         {{"role", "assistant"}, {"content", "Ho"}},
                         {{"role", "user"}, {"content", "Hu"}}};
  const std::string expected = chat.render(messages);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) equal[t] += chat.render(messages) == expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 50));
}

}  // namespace
}  // namespace ingot
