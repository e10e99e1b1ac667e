// What `ingot chat` is made of, without a model or a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <clocale>
#include <filesystem>
#include <fstream>

#include "cli/chat_input.h"
#include "cli/chat_settings.h"
#include "cli/completion.h"
#include "cli/conversation.h"
#include "cli/word_wrap.h"
#include "core/error.h"
#include "formats/test_files.h"

namespace ingot::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The messages that these lines make.
std::vector<std::string> messages(const std::vector<std::string>& lines) {
  MessageLines reader;
  std::vector<std::string> out;
  for (const std::string& line : lines)
    if (reader.push(line)) out.push_back(reader.take());
  if (reader.open()) out.push_back("OPEN " + reader.take());
  return out;
}

TEST(MessageLines, OneLineIsOneMessage) { EXPECT_THAT(messages({"one", "", "two\r"}), ElementsAre("one", "", "two")); }

TEST(MessageLines, BackslashGoesOn) {
  EXPECT_THAT(messages({"a\\", "b\\", "c", "d"}), ElementsAre("a\nb\nc", "d"));
  EXPECT_THAT(messages({"a\\"}), ElementsAre("OPEN a\n"));
}

TEST(MessageLines, QuotesHoldAnything) {
  EXPECT_THAT(messages({"\"\"\"", "a\\", "", "/exit", "\"\"\"", "b"}), ElementsAre("a\\\n\n/exit", "b"));
  EXPECT_THAT(messages({"\"\"\"first", "last\"\"\"", "b"}), ElementsAre("first\nlast", "b"));
  EXPECT_THAT(messages({"\"\"\"one\"\"\""}), ElementsAre("one"));
  EXPECT_THAT(messages({"\"\"\"a", "b"}), ElementsAre("OPEN a\nb"));
  // A text that was pasted comes as one line with line ends inside.
  EXPECT_THAT(messages({"pasted\ntwice", "\"\"\"p\nq\"\"\""}), ElementsAre("pasted\ntwice", "p\nq"));
}

TEST(MessageLines, BrokenUtf8IsReplaced) { EXPECT_THAT(messages({"a\xff z"}), ElementsAre("a\xef\xbf\xbd z")); }

TEST(Command, IsASlashAndAWord) {
  for (const char* text : {"/help", "/?", "/save file name", "/system\ttext", "/system a\nb"})
    EXPECT_TRUE(is_command(text)) << text;
  for (const char* text : {"/", "//comment", "// comment", "/usr/bin", "/Users", " /help", "/2", "help", ""})
    EXPECT_FALSE(is_command(text)) << text;
  const Command command = parse_command("/save  my file.md ");
  EXPECT_EQ(command.name, "save");
  EXPECT_EQ(command.argument, "my file.md");
  EXPECT_EQ(parse_command("/help").argument, "");
}

std::string wrapped(std::initializer_list<std::string_view> pieces, int columns) {
  WordWrap wrap;
  std::string out;
  for (const std::string_view piece : pieces) out += wrap.push(piece, columns);
  return out + wrap.finish(columns);
}

TEST(WordWrap, BreaksBetweenWords) {
  EXPECT_EQ(wrapped({"one two three four"}, 9), "one two\nthree\nfour");
  EXPECT_EQ(wrapped({"one tw", "o thr", "ee four"}, 9), "one two\nthree\nfour");
  EXPECT_EQ(wrapped({"exact fit\nnext"}, 9), "exact fit\nnext");
  EXPECT_EQ(wrapped({"a  b\n\n c"}, 80), "a  b\n\n c");
  // A word that no line holds is left to the terminal.
  EXPECT_EQ(wrapped({"a very-long-words b"}, 8), "a very-long-words b");
}

TEST(WordWrap, ShowsAWordWhenItEnds) {
  WordWrap wrap;
  EXPECT_EQ(wrap.push("Hello wor", 80), "Hello");
  EXPECT_EQ(wrap.push("ld, ", 80), " world,");
  EXPECT_EQ(wrap.finish(80), " ");
}

TEST(WordWrap, LeavesCodeAsItIs) {
  EXPECT_EQ(wrapped({"a b c d\n``", "`\none two three\n```\na b c d"}, 5),
            "a b c\nd\n```\none two three\n```\na b c\nd");
}

TEST(WordWrap, WideCharactersAreWords) {
  ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr);
  EXPECT_EQ(wrapped({"世界世界"}, 5), "世界\n世界");
  EXPECT_EQ(wrapped({"é é é"}, 3), "é é\né");
}

TEST(Completion, KnowsCommandsSettingsAndFiles) {
  const std::vector<std::string> commands = {"/save", "/set", "/system"}, settings = {"top_k", "top_p", "seed"};
  const TempDir dir;
  std::ofstream(dir.path() / "talk one.md") << "x";
  std::ofstream(dir.path() / ".hidden") << "x";
  std::filesystem::create_directory(dir.path() / "folder");
  const auto insert = [&](const std::string& line) { return complete_line(line, commands, settings).insert; };
  EXPECT_EQ(insert("/sy"), "stem ");
  EXPECT_EQ(insert("/s"), "");
  EXPECT_THAT(complete_line("/s", commands, settings).choices, ElementsAre("/save", "/set", "/system"));
  EXPECT_EQ(insert("/set t"), "op_");
  EXPECT_EQ(insert("/set top_k"), " ");
  EXPECT_EQ(insert("/set top_k 4"), "");
  EXPECT_EQ(insert("/load " + dir.path().string() + "/ta"), "lk one.md ");
  EXPECT_EQ(insert("/load " + dir.path().string() + "/fo"), "lder/");
  EXPECT_EQ(insert("/load " + dir.path().string() + "/."), "hidden ");
  EXPECT_EQ(insert("/load /no/such/folder/x"), "");
  EXPECT_EQ(insert("a message"), "");
}

TEST(PrintableText, DropsWhatSteersATerminal) {
  EXPECT_EQ(printable_text("a\x1b[2Jb\x07\b\r\x7f\xc2\x9b"
                           "31mc\td\ne"),
            "a[2Jb31mc\td\ne");
  EXPECT_EQ(printable_text("Grüße, 世界 \xc2\xa0 \xf0\x9f\xa6\x99"), "Grüße, 世界 \xc2\xa0 \xf0\x9f\xa6\x99");
}

TEST(ChatSettings, TakesOnlyWhatMakesSense) {
  ChatSettings settings;
  settings.set("temperature", "0.25");
  settings.set("top-p", "0.5");
  settings.set("seed", "7");
  settings.set("max_tokens", "12");
  EXPECT_FLOAT_EQ(settings.sampling.sampling.temperature, 0.25f);
  EXPECT_FLOAT_EQ(settings.sampling.sampling.top_p, 0.5f);
  EXPECT_EQ(settings.sampling.seed, 7);
  EXPECT_EQ(settings.sampling.max_tokens, 12);
  EXPECT_THAT(settings.list(), HasSubstr("temperature         0.25\n"));
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{{"temperature", "-1"},
                                                                                    {"temperature", "warm"},
                                                                                    {"temperature", "nan"},
                                                                                    {"temperature", ""},
                                                                                    {"top_k", "1.5"},
                                                                                    {"top_p", "0"},
                                                                                    {"max_tokens", "0"},
                                                                                    {"max_tokens", "1e300"},
                                                                                    {"wheels", "4"}})
    EXPECT_THROW(settings.set(name, value), Error) << name << " " << value;
  EXPECT_FLOAT_EQ(settings.sampling.sampling.temperature, 0.25f);
}

class ConversationTest : public ::testing::Test {
 protected:
  ConversationTest() {
    char name[] = "/tmp/ingot-chat-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ConversationTest() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& text) const {
    std::ofstream(file("in.json")) << text;
    return file("in.json");
  }

  // A question and its answer `count` times, every message one token long.
  static Conversation talk(int count) {
    Conversation conversation;
    for (int i = 0; i < count; ++i) {
      conversation.add("user", "q" + std::to_string(i));
      conversation.add("assistant", "a" + std::to_string(i));
    }
    return conversation;
  }
  static std::function<int64_t()> sent(const Conversation& c) {
    return [&c] { return static_cast<int64_t>(c.messages().size() - c.first_shown()); };
  }

  std::string folder_;
};

TEST_F(ConversationTest, OldestTurnsMakeWay) {
  Conversation conversation = talk(10);
  conversation.add("user", "last");
  EXPECT_EQ(conversation.fit(21, 4, sent(conversation)), 0u) << "it fits";
  EXPECT_EQ(conversation.fit(20, 4, sent(conversation)), 6u) << "16 are left: the slack is made too";
  EXPECT_EQ(conversation.first_shown(), 6u);
  EXPECT_EQ(conversation.messages()[6].role, "user");
  EXPECT_EQ(conversation.messages().size(), 21u) << "nothing is forgotten, only not sent";
  EXPECT_EQ(conversation.fit(20, 4, sent(conversation)), 0u);
  // The last question stays even when it alone is too long.
  EXPECT_EQ(conversation.fit(0, 4, sent(conversation)), 14u);
  EXPECT_EQ(conversation.messages()[conversation.first_shown()].content, "last");
  EXPECT_EQ(conversation.take_last_question(), "last");
  EXPECT_EQ(conversation.take_last_question(), "q9");
  EXPECT_EQ(sent(conversation)(), 0);
  EXPECT_EQ(Conversation().fit(0, 1, [] { return 100; }), 0u);
}

TEST_F(ConversationTest, SavedIsLoaded) {
  Conversation conversation = talk(2);
  conversation.system = "Be \"brief\".\nPlease.";
  conversation.add("user", "ünï\n```\ncode\n```");
  conversation.save(file("talk.json"), "a model");
  struct stat info = {};
  ASSERT_EQ(stat(file("talk.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "nobody else reads it";
  Conversation loaded = talk(1);
  loaded.load(file("talk.json"));
  EXPECT_EQ(loaded.system, conversation.system);
  EXPECT_EQ(loaded.messages(), conversation.messages());
  conversation.save(file("talk.md"), "a model");
  std::ifstream text(file("talk.md"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(text), {}),
            "# Conversation with a model\n\n## System\n\nBe \"brief\".\nPlease.\n\n## You\n\nq0\n\n## "
            "Answer\n\na0\n\n## You\n\nq1\n\n"
            "## Answer\n\na1\n\n## You\n\nünï\n```\ncode\n```\n");
  EXPECT_THROW(conversation.save(file("no/such/folder.json"), "m"), Error);
}

TEST_F(ConversationTest, LoadsAListOfMessages) {
  Conversation conversation;
  conversation.load(write(R"([{"role":"system","content":"s"},{"role":"user","content":"u"}])"));
  EXPECT_EQ(conversation.system, "s");
  EXPECT_THAT(conversation.messages(), ElementsAre(Message{"user", "u"}));
}

TEST_F(ConversationTest, BadFilesChangeNothing) {
  Conversation conversation = talk(1);
  for (const char* text : {"", "{", "3", "{}", R"({"messages":{}})", R"([1])", R"([{"role":"user"}])",
                           R"([{"role":"tool","content":"x"}])", R"([{"role":"user","content":5}])"})
    EXPECT_THAT([&] { conversation.load(write(text)); }, ThrowsMessage<Error>(HasSubstr("in.json"))) << text;
  EXPECT_THROW(conversation.load(file("nothing.json")), Error);
  EXPECT_EQ(conversation.messages(), talk(1).messages());
}

}  // namespace
}  // namespace ingot::cli
