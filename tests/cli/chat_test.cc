// `ingot chat` as a person uses it: on a terminal, with the default model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/pty.h"
#include "cli/slurp.h"

namespace ingot::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kInterrupt = "\x03";
constexpr const char* kEnd = "\x04";
constexpr const char* kFrance = "What is the capital of France?";

class Chat : public ::testing::Test {
 protected:
  Chat() {
    char name[] = "/tmp/ingot-chat-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Chat() override { std::filesystem::remove_all(folder_); }
  void SetUp() override {
    ASSERT_NE(getenv("INGOT_DEFAULT_MODEL"), nullptr) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  // A chat that is ready for the first line.
  std::unique_ptr<Pty> start(std::vector<std::string> flags = {}, const std::string& color = "NO_COLOR=1",
                             const std::string& context = "2048") {
    std::vector<std::string> command = {INGOT_BINARY, "chat", "--temperature", "0", "--max-model-len", context};
    command.insert(command.end(), flags.begin(), flags.end());
    auto chat = std::make_unique<Pty>(
        // libedit never frees the names of added functions, so leaks are not looked for here.
        command, std::vector<std::string>{"XDG_STATE_HOME=" + folder_, "TERM=xterm", "LC_ALL=C.UTF-8",
                                          "ASAN_OPTIONS=detect_leaks=0", color});
    EXPECT_TRUE(chat->expect("Ctrl-D leaves")) << chat->output();
    // The prompt is drawn once the terminal is in the editor's hands; before, the kernel would edit the line.
    EXPECT_TRUE(chat->expect(">")) << chat->output();
    return chat;
  }

  // Runs with lines from a pipe: what it printed, and its exit status in `status_`.
  std::string pipe(const std::string& input, const std::string& flags = "") {
    std::ofstream(file("in")) << input;
    const std::string command = "XDG_STATE_HOME=" + folder_ + " " + INGOT_BINARY + " chat --temperature 0 " + flags +
                                " <" + file("in") + " >" + file("out") + " 2>" + file("err");
    status_ = WEXITSTATUS(system(command.c_str()));
    return slurp(file("out"));
  }

  json saved(Pty& chat, const std::string& name) {
    chat.type("/save " + file(name) + "\r");
    EXPECT_TRUE(chat.expect("Saved")) << chat.output();
    return json::parse(slurp(file(name)));
  }

  std::string folder_;
  int status_ = -1;
};

TEST_F(Chat, AnswersAndTellsTheSpeed) {
  auto chat = start();
  chat->type(std::string(kFrance) + "\r");
  EXPECT_TRUE(chat->expect("Paris")) << chat->output();
  EXPECT_TRUE(chat->expect("tok/s")) << chat->output();
  EXPECT_TRUE(chat->expect("of 3")) << chat->output();  // prompt tokens cached
  chat->type("/stats\r");
  EXPECT_TRUE(chat->expect("1 answer,")) << chat->output();
  chat->type(kEnd);
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

TEST_F(Chat, EndTypedDuringAnAnswerIsKept) {
  auto chat = start({"--ignore-eos", "-n", "40"});
  chat->type("Tell me a long story.\r");
  ASSERT_TRUE(chat->expect("\r\n")) << chat->output();
  chat->type(kEnd);
  EXPECT_TRUE(chat->expect("40 tokens")) << chat->output();
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

TEST_F(Chat, InterruptStopsTheAnswerNotTheProgram) {
  auto chat = start({"--ignore-eos", "-n", "1800"});
  chat->type("Tell me a long story.\r");
  ASSERT_TRUE(chat->expect("\x1b[?2004l")) << chat->output();  // the editor has given the terminal back
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(chat->expect(" ")) << chat->output();  // in the middle of it
  chat->type(kInterrupt);
  ASSERT_TRUE(chat->expect("stopped]", 10)) << chat->output();
  for (const char* echo : {"^C", kInterrupt}) EXPECT_EQ(chat->output().find(echo), std::string::npos) << chat->output();
  ASSERT_TRUE(chat->expect("> ")) << chat->output();
  const json talk = saved(*chat, "talk.json");
  ASSERT_EQ(talk["messages"].size(), 2u) << "what came before the stop is kept";
  EXPECT_FALSE(talk["messages"][1]["content"].get<std::string>().empty());
  // A line that was begun is given up; at an empty prompt it says how to leave.
  chat->type("never sent");
  chat->type(kInterrupt);
  ASSERT_TRUE(chat->expect("> "));
  chat->type(kInterrupt);
  EXPECT_TRUE(chat->expect("/exit leaves")) << chat->output();
  chat->type("/set max_tokens 3\r");
  EXPECT_TRUE(chat->expect("max_tokens is 3")) << chat->output();
  chat->type("Go on.\r");
  EXPECT_TRUE(chat->expect("3 tokens")) << chat->output();
  EXPECT_TRUE(chat->expect("token limit")) << chat->output();
  chat->type("/exit\r");
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

// 6,000 tokens take many seconds here; the answer to Ctrl-C does not.
TEST_F(Chat, ALongPromptShowsHowFarItIsAndCanBeStopped) {
  auto chat = start({}, "NO_COLOR=1", "8192");
  std::string text;
  for (int i = 0; i < 6000; ++i) text += "word ";
  std::ofstream(file("long.json")) << json{
      {"messages", {{{"role", "user"}, {"content", text}}, {{"role", "assistant"}, {"content", "Yes."}}}}};
  chat->type("/load " + file("long.json") + "\r");
  ASSERT_TRUE(chat->expect("Loaded 2 messages")) << chat->output();
  chat->type("And now?\r");
  ASSERT_TRUE(chat->expect("reading [")) << chat->output();
  ASSERT_TRUE(chat->expect("tokens")) << chat->output();
  chat->type(kInterrupt);
  EXPECT_TRUE(chat->expect("stopped]", 5)) << chat->output();
  EXPECT_EQ(chat->output().find("^C"), std::string::npos) << chat->output();
  chat->type("/bye\r");
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

// A message of several lines is found by any of them, and shown as it was written.
TEST_F(Chat, CtrlRSearchesOverSeveralLines) {
  std::filesystem::create_directory(file("ingot"));
  std::ofstream(file("ingot/chat_history")) << json("first line\nneedle here\nlast line") << "\n"
                                            << json("another\nof two") << "\n";
  auto chat = start({"-n", "2"});
  EXPECT_EQ(chat->output().find(" bytes of "), std::string::npos) << "a model of 94 MiB: " << chat->output();
  chat->type("\x12needle");
  ASSERT_TRUE(chat->expect("first line")) << chat->output();
  ASSERT_TRUE(chat->expect("needle here")) << chat->output();
  ASSERT_TRUE(chat->expect("last line")) << chat->output();
  chat->type("\x1b\x05!\r");  // Escape ends the search, Ctrl-E goes to the end
  ASSERT_TRUE(chat->expect("cached")) << chat->output();
  EXPECT_EQ(saved(*chat, "talk.json")["messages"][0]["content"], "first line\nneedle here\nlast line!");
}

TEST_F(Chat, TabCompletes) {
  auto chat = start();
  chat->type("/st\t\r");
  EXPECT_TRUE(chat->expect("0 answers")) << chat->output();
  std::ofstream(file("a long name.json")) << R"({"messages":[]})";
  chat->type("/load " + folder_ + "/a l\t\r");
  EXPECT_TRUE(chat->expect("Loaded 0 messages")) << chat->output();
  chat->type("/s\t");
  EXPECT_TRUE(chat->expect("/save  /set  /stats  /system")) << chat->output();
  chat->type("\x15/staats\r");  // Ctrl-U
  EXPECT_TRUE(chat->expect("did you mean /stats?")) << chat->output();
  chat->type("/bye\r");
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

TEST_F(Chat, InterruptBetweenTwoLinesIsHarmless) {
  auto chat = start({"-n", "4"});
  for (int i = 0; i < 20; ++i) {
    chat->type("/set max_tokens 4\r");
    ASSERT_TRUE(chat->expect("max_tokens is 4")) << chat->output();
    chat->type(kInterrupt);  // before the editor has the terminal again, or after
  }
  chat->type("/exit\r");
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

TEST_F(Chat, TakesSeveralLines) {
  auto chat = start({"-n", "4"});
  chat->type("one\\\r");
  ASSERT_TRUE(chat->expect("… ")) << chat->output();
  chat->type("two\r");
  ASSERT_TRUE(chat->expect("cached")) << chat->output();
  chat->type("\"\"\"\r");
  ASSERT_TRUE(chat->expect("… "));
  chat->type("/exit\r\rGrüße 世界\r\"\"\"\r");
  ASSERT_TRUE(chat->expect("cached")) << chat->output();
  ASSERT_TRUE(chat->expect("> "));
  chat->type("\x1b[200~pasted one\rpasted two\x1b[201~");
  ASSERT_TRUE(chat->expect("pasted two"));
  chat->type("\r");
  ASSERT_TRUE(chat->expect("cached")) << chat->output();
  const json messages = saved(*chat, "talk.json")["messages"];
  ASSERT_EQ(messages.size(), 6u) << chat->output();
  EXPECT_EQ(messages[0]["content"], "one\ntwo");
  EXPECT_EQ(messages[2]["content"], "/exit\n\nGrüße 世界");
  EXPECT_EQ(messages[4]["content"], "pasted one\npasted two");
}

TEST_F(Chat, EditsByCharacterAndRemembers) {
  {
    auto chat = start({"-n", "2"});
    chat->type("Grüßé\x7f\x7f!\r");  // two characters back, whatever their bytes
    ASSERT_TRUE(chat->expect("cached")) << chat->output();
    EXPECT_EQ(saved(*chat, "a.json")["messages"][0]["content"], "Grü!");
    chat->type("/exit\r");
    EXPECT_EQ(chat->wait(), 0);
  }
  struct stat info = {};
  ASSERT_EQ(stat(file("ingot/chat_history").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto chat = start({"-n", "2"});
  chat->type("\x1b[A\x1b[A\x1b[A");  // over /exit and /save to the message of the chat before
  chat->type("?\r");
  ASSERT_TRUE(chat->expect("cached")) << chat->output();
  EXPECT_EQ(saved(*chat, "b.json")["messages"][0]["content"], "Grü!?");
}

TEST_F(Chat, CommandsDoWhatTheySay) {
  auto chat = start({"-n", "6", "--system", "You are terse."});
  chat->type("/help\r");
  EXPECT_TRUE(chat->expect("/retry")) << chat->output();
  chat->type("/system\r");
  EXPECT_TRUE(chat->expect("You are terse.")) << chat->output();
  chat->type("/system Speak French.\r");
  EXPECT_TRUE(chat->expect("next answer")) << chat->output();
  chat->type("first\r");
  ASSERT_TRUE(chat->expect("cached"));
  chat->type("second\r");
  ASSERT_TRUE(chat->expect("cached"));
  chat->type("/retry\r");
  ASSERT_TRUE(chat->expect("cached"));
  json talk = saved(*chat, "talk.json");
  EXPECT_EQ(talk["system"], "Speak French.");
  EXPECT_EQ(talk["messages"].size(), 4u);
  chat->type("/undo\r");
  EXPECT_TRUE(chat->expect("Taken back: second")) << chat->output();
  EXPECT_EQ(saved(*chat, "talk.json")["messages"].size(), 2u) << "its own file is written again";
  chat->type("/reset\r");
  ASSERT_TRUE(chat->expect("anew"));
  EXPECT_EQ(saved(*chat, "empty.json")["messages"].size(), 0u);
  chat->type("/save " + file("talk.json") + "\r");
  EXPECT_TRUE(chat->expect("exists already")) << "but no other file";
  chat->type("/load " + file("talk.json") + "\r");
  EXPECT_TRUE(chat->expect("Loaded 2 messages")) << chat->output();
  chat->type("/save " + file("talk.md") + "\r");
  ASSERT_TRUE(chat->expect("Saved"));
  EXPECT_THAT(slurp(file("talk.md")), HasSubstr("## You\n\nfirst\n"));
  chat->type("/load " + file("talk.md") + "\r");
  EXPECT_TRUE(chat->expect("not valid JSON")) << chat->output();
  chat->type("/set\r");
  EXPECT_TRUE(chat->expect("repetition_penalty")) << chat->output();
  chat->type("/set top_p 7\r");
  EXPECT_TRUE(chat->expect("top_p must be")) << chat->output();
  chat->type("/fly\r");
  EXPECT_TRUE(chat->expect("no command /fly")) << chat->output();
  chat->type("/exit\r");
  EXPECT_EQ(chat->wait(), 0);
}

TEST_F(Chat, AnswersFitASchema) {
  std::ofstream(file("schema.json")) << R"({"type": "object", "properties": {"capital": {"enum": ["Paris", "Rome"]},
    "sure": {"type": "boolean"}}, "required": ["capital", "sure"], "additionalProperties": false})";
  auto chat = start({"--schema", file("schema.json"), "--strict"});
  for (const char* question : {kFrance, "And of Italy?"}) {
    chat->type(std::string(question) + "\r");
    ASSERT_TRUE(chat->expect("cached")) << chat->output();
    EXPECT_THAT(chat->output(), Not(HasSubstr("token limit")));
  }
  const json messages = saved(*chat, "talk.json")["messages"];
  ASSERT_EQ(messages.size(), 4u);
  for (const int answer : {1, 3}) {
    const json value = json::parse(messages[answer]["content"].get<std::string>());
    EXPECT_EQ(value.size(), 2u) << value;
    EXPECT_TRUE(value["sure"].is_boolean());
  }
  EXPECT_EQ(json::parse(messages[1]["content"].get<std::string>())["capital"], "Paris");
  chat->type(kEnd);
  EXPECT_EQ(chat->wait(), 0) << chat->output();
}

TEST_F(Chat, FullContextDropsTheOldest) {
  auto chat = start({"-n", "30", "--ignore-eos"}, "NO_COLOR=1", "160");
  for (int turn = 0; turn < 5; ++turn) {
    chat->type("Tell me about the number " + std::to_string(turn) + ".\r");
    ASSERT_TRUE(chat->expect("cached")) << chat->output();
  }
  EXPECT_THAT(chat->output(), HasSubstr("messages are left out"));
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word ";
  chat->type(text + "\r");
  EXPECT_TRUE(chat->expect("shorten it")) << chat->output();
  chat->type("Still there?\r");
  EXPECT_TRUE(chat->expect("cached")) << chat->output();
  EXPECT_EQ(saved(*chat, "talk.json")["messages"].size(), 12u) << "what is not sent any more is still saved";
  chat->type(kEnd);
  EXPECT_EQ(chat->wait(), 0);
}

TEST_F(Chat, NoColorIsRespected) {
  const auto plain = start();
  plain->type("/reset\r");
  ASSERT_TRUE(plain->expect("anew"));
  EXPECT_THAT(plain->output(), Not(HasSubstr("\x1b[2m")));
  EXPECT_THAT(plain->output(), Not(HasSubstr("\x1b[1;33m")));
  const auto colored = start({}, "NO_COLOR=");
  EXPECT_THAT(colored->output(), HasSubstr("\x1b[1;33m>"));
  EXPECT_THAT(colored->output(), HasSubstr("\x1b[2m"));
}

TEST_F(Chat, ReadsAPipe) {
  EXPECT_EQ(pipe(std::string(kFrance) + "\nAnd of \\\nItaly?\n"),
            "The capital of France is Paris.\nThe capital of Italy is Rome.\n");
  EXPECT_EQ(status_, 0) << slurp(file("err"));
  EXPECT_EQ(slurp(file("err")), "");
  EXPECT_FALSE(std::filesystem::exists(file("ingot/chat_history"))) << "only a person's lines are remembered";
  // The last line may lack its end; commands work; remarks do not mix with the answers.
  EXPECT_EQ(pipe("/system You are terse.\n/reset\n\n" + std::string(kFrance)), "The capital of France is Paris.\n");
  EXPECT_THAT(slurp(file("err")), HasSubstr("anew"));
  EXPECT_EQ(pipe(""), "");
  EXPECT_EQ(status_, 0);
}

TEST_F(Chat, ErrorsInAPipeEndWithAStatus) {
  pipe("/load /nowhere.json\nhello\n");
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(slurp(file("err")), HasSubstr("/nowhere.json"));
  pipe("/fly\n");
  EXPECT_EQ(status_, 2);
  pipe("hello\n", "-m " + std::string(INGOT_FIXTURES) + "/models/llama-bf16-llama3");
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(slurp(file("err")), HasSubstr("no chat template"));
}

}  // namespace
}  // namespace ingot::testing
