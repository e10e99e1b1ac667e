#include "orchestrator/text_drafter.h"

#include <gtest/gtest.h>

#include <memory>

namespace ingot {
namespace {

using Tokens = std::vector<int32_t>;

// A sequence of somebody's request.
struct Asked {
  explicit Asked(Tokens prompt, const std::string& client = "a", const std::string& salt = "") {
    request->prompt_len = std::ssize(prompt);
    request->spec.client = client;
    request->spec.cache_salt = salt;
    sequence.request = request.get();
    sequence.tokens = std::move(prompt);
  }
  Tokens guessed(TextDrafter& drafter, int32_t most) {
    last = {.sequence = &sequence};
    drafter.offer(last, most);
    EXPECT_EQ(last.most, std::ssize(last.tokens));
    return last.tokens;
  }
  void answer(TextDrafter& drafter, const Tokens& tokens) {
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
    drafter.keep(sequence);
  }

  std::unique_ptr<Request> request = std::make_unique<Request>();
  Sequence sequence;
  Guess last;
};

TEST(TextDrafter, GoesOnAsTheTextDidBefore) {
  TextDrafter drafter(false);
  Asked asked({9, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3});
  EXPECT_EQ(asked.guessed(drafter, 3), (Tokens{4, 5, 6}));
  EXPECT_EQ(asked.guessed(drafter, 9), (Tokens{4, 5, 6, 7, 1, 2, 3, 4, 5})) << "round and round";
  EXPECT_EQ(Asked({1, 2, 3, 4}).guessed(drafter, 3), Tokens());
}

// Of several places that are equally like the end, the most go on: one that went on otherwise once, be it the last,
// does not decide.
TEST(TextDrafter, TakesWhatCameNextMostOften) {
  TextDrafter drafter(false);
  Asked asked({1, 2, 3, 4, 5, 60, 1, 2, 3, 4, 5, 61, 1, 2, 3, 4, 5, 61, 1, 2, 3, 8, 62, 1, 2, 3});
  EXPECT_EQ(asked.guessed(drafter, 4), (Tokens{4, 5, 61, 1}));
  const double agreed = asked.last.prior;
  Asked divided({1, 2, 3, 4, 60, 1, 2, 3, 5, 61, 1, 2, 3, 6, 62, 1, 2, 3});
  EXPECT_EQ(divided.guessed(drafter, 1), Tokens{6}) << "the newest of equals";
  EXPECT_LT(divided.last.prior, agreed) << "and less likely";
}

TEST(TextDrafter, LearnsFromTheSameClientsAnswersAlone) {
  const Tokens answer = {11, 12, 13, 14, 15, 16}, prompt = {90, 11, 12, 13};
  for (const bool recent : {true, false}) {
    TextDrafter drafter(recent);
    Asked({50, 51}).answer(drafter, answer);
    EXPECT_EQ(Asked(prompt).guessed(drafter, 8), recent ? (Tokens{14, 15, 16}) : Tokens());
    EXPECT_EQ(Asked(prompt, "b").guessed(drafter, 8), Tokens()) << "another client";
    EXPECT_EQ(Asked(prompt, "a", "salt").guessed(drafter, 8), Tokens()) << "another salt";
  }
}

}  // namespace
}  // namespace ingot
