// What models write and what it means: the cases of tests/text/dialects, whole and cut at every place.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/utf8.h"
#include "cpu_time.h"
#include "soak.h"
#include "text/calls/parser.h"
#include "text/dialects/dialect.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
const std::filesystem::path kCases = std::filesystem::path(INGOT_FIXTURES) / "../text/dialects";

Json read_json(const std::string& name) {
  std::ifstream file(kCases / name);
  return Json::parse(file);
}

struct Answer {
  ParsedChat chat;
  std::string finish_reason;

  bool operator==(const Answer& other) const {
    const auto same = [](const ParsedCall& a, const ParsedCall& b) {
      return a.name == b.name && a.id == b.id && a.arguments == b.arguments && a.cut == b.cut;
    };
    return chat.content == other.chat.content && chat.reasoning == other.chat.reasoning &&
           finish_reason == other.finish_reason && chat.calls.size() == other.chat.calls.size() &&
           std::equal(chat.calls.begin(), chat.calls.end(), other.chat.calls.begin(), same);
  }
};

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "content <" << answer.chat.content << "> reasoning <" << answer.chat.reasoning << "> finish "
      << answer.finish_reason;
  for (const ParsedCall& call : answer.chat.calls)
    out << "\n  " << call.name << " <" << call.arguments << "> id " << call.id << (call.cut ? " cut" : "");
  return out;
}

// What holds for every stream of events, however the text is cut.
class EventChecker {
 public:
  void add(const std::vector<ChatEvent>& events) {
    for (const ChatEvent& event : events) {
      EXPECT_TRUE(is_valid_utf8(event.text)) << event.text;
      switch (event.kind) {
        case ChatEvent::Kind::content:
        case ChatEvent::Kind::reasoning: EXPECT_FALSE(event.text.empty()); break;
        case ChatEvent::Kind::call_begin:
          EXPECT_FALSE(open_);
          EXPECT_EQ(event.index, calls_++) << "indices count up";
          EXPECT_FALSE(event.text.empty()) << "a call has a name";
          open_ = true;
          break;
        case ChatEvent::Kind::arguments: EXPECT_FALSE(event.text.empty()); [[fallthrough]];
        case ChatEvent::Kind::call_end:
          EXPECT_TRUE(open_);
          EXPECT_EQ(event.index, calls_ - 1);
          open_ = event.kind == ChatEvent::Kind::arguments;
          break;
      }
    }
    chat.add(events);
  }
  void end() const { EXPECT_FALSE(open_) << "every call ends"; }

  ParsedChat chat;

 private:
  int calls_ = 0;
  bool open_ = false;
};

// `cuts`: where the text is cut, in order.
Answer parse(const Dialect& dialect, const ChatParserOptions& options, std::string_view text,
             const std::vector<size_t>& cuts) {
  const auto parser = make_chat_parser(dialect, options);
  EventChecker checker;
  size_t at = 0;
  for (const size_t cut : cuts) {
    checker.add(parser->feed(text.substr(at, cut - at)));
    at = cut;
  }
  checker.add(parser->feed(text.substr(at)));
  checker.add(parser->finish());
  checker.end();
  return {checker.chat, std::string(chat_finish_reason(*parser, "stop"))};
}

Answer expected(const Json& wanted) {
  const auto text = [](const Json& value) { return value.is_null() ? std::string() : value.get<std::string>(); };
  Answer answer{{text(wanted["content"]), text(wanted["reasoning"]), {}}, wanted["finish_reason"]};
  for (const Json& call : wanted["tool_calls"])
    answer.chat.calls.push_back({call["name"], call.value("id", ""), call["arguments"], false});
  return answer;
}

class DialectCases : public testing::TestWithParam<std::string> {};

constexpr size_t kEach =
    test::kSanitized ? 5 : 1;  // bytes between two cuts; what is answered is the release suite's matter

TEST_P(DialectCases, WholeAndCut) {
  const Dialect& dialect = find_dialect(GetParam());
  const Json tools = read_json("tools.json");
  for (const Json& one : read_json(GetParam() + ".json")) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const std::string text = one["text"];
    ChatParserOptions options{.in_reasoning = one.value("in_reasoning", false)};
    if (one.value("tools", false)) options.tools = ToolSchemas(tools);

    const Answer whole = parse(dialect, options, text, {});
    Answer wanted = expected(one);
    for (size_t i = 0; i < std::min(wanted.chat.calls.size(), whole.chat.calls.size()); ++i) {
      wanted.chat.calls[i].cut = whole.chat.calls[i].cut;  // told by the reason
      if (wanted.chat.calls[i].id.empty()) wanted.chat.calls[i].id = whole.chat.calls[i].id;
    }
    EXPECT_EQ(whole, wanted);

    std::vector<size_t> all(text.empty() ? 0 : text.size() - 1);
    std::iota(all.begin(), all.end(), 1);
    for (size_t i = 1; i < text.size(); i += kEach)
      ASSERT_EQ(parse(dialect, options, text, {i}), whole) << "cut at " << i;
    ASSERT_EQ(parse(dialect, options, text, all), whole) << "byte by byte";
    constexpr size_t kShort = test::kSanitized ? 20 : 90;
    for (size_t i = 1; i < text.size() && text.size() <= kShort; ++i)
      for (size_t j = i + 1; j < text.size(); ++j)
        ASSERT_EQ(parse(dialect, options, text, {i, j}), whole) << "cut at " << i << " and " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DialectCases, testing::ValuesIn(dialect_names()),
                         [](const auto& info) { return info.param; });

// Whatever a text is cut off at, its calls are the beginnings of what they would have been.
TEST_P(DialectCases, BeginningsOfTexts) {
  const Dialect& dialect = find_dialect(GetParam());
  for (const Json& one : read_json(GetParam() + ".json")) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const std::string text = one["text"];
    const ChatParserOptions options{.in_reasoning = one.value("in_reasoning", false)};
    const Answer whole = parse(dialect, options, text, {});
    for (size_t n = 0; n < text.size(); n += kEach) {
      const Answer part = parse(dialect, options, std::string_view(text).substr(0, n), {});
      ASSERT_LE(part.chat.calls.size(), whole.chat.calls.size()) << n;
      for (size_t i = 0; i < part.chat.calls.size(); ++i) {
        EXPECT_EQ(part.chat.calls[i].name, whole.chat.calls[i].name) << n;
        if (part.chat.calls[i].cut) {
          EXPECT_EQ(part.finish_reason, "length") << n;
          EXPECT_EQ(i + 1, part.chat.calls.size()) << n;
        }
        const std::string& arguments = whole.chat.calls[i].arguments;
        if (!part.chat.calls[i].cut && is_valid_utf8(std::string_view(text).substr(0, n))) {
          EXPECT_EQ(part.chat.calls[i].arguments, arguments) << n;
        }
      }
    }
  }
}

TEST(Dialects, UnknownNameListsAll) {
  try {
    find_dialect("hermit");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_call);
    const std::string message = error.what();
    EXPECT_NE(message.find("hermit"), message.npos);
    for (const std::string& name : dialect_names()) EXPECT_NE(message.find(name), message.npos) << name;
  }
}

TEST(Dialects, ChosenFromTheTemplate) {
  const auto chosen = [](std::string_view source) { return std::string(choose_dialect(source).name); };
  EXPECT_EQ(chosen("{{ messages }}"), "json");
  EXPECT_EQ(chosen("<tools>...<tool_call>\n{\"name\": ...}\n</tool_call>"), "hermes");
  EXPECT_EQ(chosen("<tool_call>\n<function=example>\n<parameter=a>"), "qwen3_coder");
  EXPECT_EQ(chosen("<seed:tool_call>\n<function=example>\n<parameter=a>"), "qwen3_coder");
  EXPECT_EQ(chosen("<tool_call>{name}<arg_key>k</arg_key><arg_value>"), "glm45");
  EXPECT_EQ(chosen("[AVAILABLE_TOOLS] [TOOL_CALLS]"), "mistral");
  EXPECT_EQ(chosen("<|start_header_id|>ipython {\"name\": x, \"parameters\": y}"), "llama3_json");
  EXPECT_EQ(chosen("<|python_tag|>"), "llama3_json");
  EXPECT_EQ(chosen("<|header_start|> [func_name1(params_name1=...)]"), "pythonic");
  EXPECT_EQ(chosen("<|tool_list_start|>"), "pythonic");
  EXPECT_EQ(chosen("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜> ```json"), "deepseek_v3");
  EXPECT_EQ(chosen("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name<｜tool▁sep｜>"), "deepseek_v31");
  EXPECT_EQ(chosen("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"), "kimi_k2");
  EXPECT_EQ(chosen("<|start_of_role|>assistant<|end_of_role|><|tool_call|>"), "granite");
  EXPECT_EQ(chosen("<|tool|>{{ tools }}<|/tool|>"), "phi4");
  EXPECT_EQ(chosen("<|start|>assistant<|channel|>final<|message|>"), "harmony");
}

TEST(Dialects, WithoutToolsOrReasoningAllIsContent) {
  const std::string text = "<think>a</think><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const Dialect& hermes = find_dialect("hermes");
  EXPECT_EQ(parse(hermes, {.calls = false, .reasoning = false}, text, {}).chat.content, text);
  const Answer answer = parse(hermes, {.calls = false}, text, {});
  EXPECT_EQ(answer.chat.reasoning, "a");
  EXPECT_EQ(answer.chat.content, text.substr(text.find("<tool_call>")));
  const Answer calls = parse(hermes, {.reasoning = false}, text, {});
  EXPECT_EQ(calls.chat.content, "<think>a</think>");
  EXPECT_EQ(calls.chat.calls.size(), 1u);
}

TEST(Dialects, BrokenBytesBecomeReplacementCharacters) {
  const std::string text =
      "a\xff\xe6\x9d<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"\xe6\x9d\"}}</tool_call>\xe6";
  const Dialect& hermes = find_dialect("hermes");
  const Answer whole = parse(hermes, {}, text, {});
  EXPECT_EQ(whole.chat.content, "a\uFFFD\uFFFD\uFFFD");
  ASSERT_EQ(whole.chat.calls.size(), 1u);
  EXPECT_EQ(whole.chat.calls[0].arguments, "{\"x\": \"\uFFFD\"}");
  for (size_t i = 1; i < text.size(); ++i) EXPECT_EQ(parse(hermes, {}, text, {i}), whole) << i;
}

TEST(Dialects, ArgumentsComeAsTheyAreWritten) {
  // A long string is not held back: what was fed is out, but for what may be the beginning of a mark.
  for (const auto& [name, head] :
       {std::pair{"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \""},
        std::pair{"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n"},
        std::pair{"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>"}, std::pair{"pythonic", "[f(a='"},
        std::pair{"harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\": \""}}) {
    SCOPED_TRACE(name);
    const auto parser = make_chat_parser(find_dialect(name), {});
    parser->feed(head);
    for (int i = 0; i < 50; ++i) {
      const auto events = parser->feed("word ");
      ASSERT_EQ(events.size(), 1u);
      EXPECT_EQ(events[0].text, i == 0 && events[0].text.front() == '"' ? "\"word " : "word ");
    }
  }
}

// Texts that make a parser go back: every byte may cost only so much.
TEST(Dialects, TimeIsLinear) {
  if (test::kSanitized) GTEST_SKIP() << "times of a sanitizer mean nothing";
  const auto repeat = [](std::string_view text, size_t bytes) {
    std::string out;
    while (out.size() < bytes) out += text;
    return out;
  };
  constexpr size_t kBytes = size_t{1} << 20;
  for (const std::string& name : dialect_names()) {
    for (const std::string_view text :
         {"{", "[", "{\"name\":\"f\",\"x\":", "{\"name\": \"f\", \"arguments\": {}, \"x\": {", "[f(a=", "<tool_call>",
          "<think>", "<tool_call>\n<function=f>\n<parameter=a>\n", "[TOOL_CALLS]f", "<｜tool▁call▁begin｜>",
          "<|channel|>", "\n", " <", "functools[", "<|tool_call_begin|>f:0", "\xf0\x9f\x8e"}) {
      SCOPED_TRACE(name + " " + std::string(text));
      const std::string long_text = repeat(text, kBytes);
      const auto parser = make_chat_parser(find_dialect(name), {});
      const double begin = test::thread_cpu_s();
      for (size_t at = 0; at < long_text.size(); at += 4096) parser->feed(std::string_view(long_text).substr(at, 4096));
      parser->finish();
      EXPECT_LT(test::thread_cpu_s() - begin, 2.0) << "for a mebibyte";
    }
  }
}

}  // namespace
}  // namespace ingot
