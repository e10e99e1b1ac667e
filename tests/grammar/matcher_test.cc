#include "grammar/matcher.h"

#include <thread>

#include "helpers.h"

namespace ingot::grammar {
namespace {

constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false})";

TEST(Matcher, EndsWhereTheTextMayEnd) {
  Matcher matcher(Grammar::regex(test::byte_vocabulary(), "ab?"));
  EXPECT_FALSE(matcher.accept(test::kEnd));
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.accept(test::kEnd));
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_FALSE(matcher.accept('b'));
  std::vector<uint32_t> bits(test::byte_vocabulary()->mask_words());
  matcher.fill_mask(bits);
  for (int32_t id = 0; id < 258; ++id) EXPECT_EQ(bits[id / 32] >> (id % 32) & 1, id == test::kEnd ? 1u : 0u);
  matcher.rollback(1);
  EXPECT_TRUE(matcher.accept('b'));
}

TEST(Matcher, ARefusedTokenChangesNothing) {
  Matcher matcher(test::schema(kPerson));
  ASSERT_EQ(matcher.accept_bytes("{\"name\":\"x\""), 11u);
  EXPECT_EQ(matcher.accept_bytes(",\"ager"), 5u);  // how far it would have gone
  EXPECT_FALSE(matcher.accept('x'));
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(100'000));
  EXPECT_EQ(matcher.text(), "{\"name\":\"x\"");
  EXPECT_EQ(matcher.accept_bytes(",\"age\":1}"), 9u);
  EXPECT_TRUE(matcher.is_complete());
}

TEST(Matcher, GoesBackAndForks) {
  Matcher matcher(test::schema(kPerson));
  for (const char c : std::string("{\"name\":\"abc")) ASSERT_TRUE(matcher.accept(c));
  Matcher fork = matcher;
  matcher.rollback(3);
  EXPECT_EQ(matcher.text(), "{\"name\":\"");
  EXPECT_EQ(matcher.accept_bytes("z\",\"age\":4}"), 11u);
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_EQ(fork.text(), "{\"name\":\"abc");
  EXPECT_EQ(fork.accept_bytes("\",\"age\":5 }"), 11u);
  EXPECT_THROW(matcher.rollback(1000), Error);
  matcher.rollback(matcher.steps());
  EXPECT_EQ(matcher.text(), "");
}

TEST(Matcher, SaysWhatMustFollow) {
  Matcher matcher(test::schema(kPerson, {.strict = true, .max_white_space = 0}));
  EXPECT_EQ(matcher.forced(), "{\"name\":\"");
  ASSERT_EQ(matcher.accept_bytes("{\"name\":\"x\""), 11u);
  EXPECT_EQ(matcher.forced(), ",\"age\":");
  EXPECT_EQ(matcher.forced(3), ",\"a");
  ASSERT_EQ(matcher.accept_bytes(",\"age\":7}"), 9u);
  EXPECT_EQ(matcher.forced(), "");
}

// A machine that may keep little is thrown away and made anew; nothing else changes.
TEST(Matcher, GoesOnWhenItsMachineIsFull) {
  Limits small;
  small.max_bytes = 400'000;
  const std::string source = R"({"type":"array","items":{"enum":["alpha","beta","gamma","delta"]}})";
  Matcher matcher(test::schema(source, {.limits = small})), twin(test::schema(source));
  std::vector<uint32_t> bits(test::byte_vocabulary()->mask_words()), other = bits;
  const std::string text = R"(["alpha", "beta","gamma" ,"delta","alpha"])";
  for (const char c : text) {
    ASSERT_TRUE(matcher.accept(c)) << matcher.text();
    ASSERT_TRUE(twin.accept(c));
    matcher.fill_mask(bits);
    twin.fill_mask(other);
    ASSERT_EQ(bits, other) << matcher.text();
  }
  EXPECT_TRUE(matcher.is_complete());
  matcher.rollback(20);
  EXPECT_EQ(matcher.accept_bytes(text.substr(text.size() - 20)), 20u);
}

TEST(Matcher, DeepNestingEndsInAnErrorNotACrash) {
  Limits small;
  small.max_bytes = 2'000'000;
  Matcher matcher(test::schema("{}", {.limits = small}));
  EXPECT_THROW(
      {
        for (int i = 0; i < 100'000; ++i)
          if (!matcher.accept('[')) break;
      },
      OverBudget);
}

TEST(Matcher, ThreadsShareAGrammar) {
  const auto grammar = test::schema(kPerson);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&grammar, t] {
      std::vector<uint32_t> bits(test::byte_vocabulary()->mask_words());
      for (int round = 0; round < 20; ++round) {
        Matcher matcher(grammar);
        for (const char c :
             t % 2 == 0 ? std::string(R"({"name":"abc","age":12})") : std::string(R"({ "age" : 3, "name":""})")) {
          matcher.fill_mask(bits);
          ASSERT_TRUE(bits[static_cast<uint8_t>(c) / 32] >> (c % 32) & 1);
          ASSERT_TRUE(matcher.accept(c));
        }
        ASSERT_TRUE(matcher.is_complete());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Matcher, Choices) {
  const auto grammar = Grammar::choice(test::byte_vocabulary(), {"yes", "no", "not sure"});
  for (const char* text : {"yes", "no", "not sure"}) EXPECT_TRUE(test::accepts(grammar, text));
  for (const char* text : {"", "not", "yesno"}) EXPECT_FALSE(test::accepts(grammar, text));
  EXPECT_TRUE(test::refusal([] { Grammar::choice(test::byte_vocabulary(), {}); }).starts_with("choice"));
}

}  // namespace
}  // namespace ingot::grammar
