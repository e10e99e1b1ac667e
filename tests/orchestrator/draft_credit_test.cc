#include "orchestrator/draft_credit.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(DraftCredit, LossesArePaidByTimeWithoutGuesses) {
  DraftCredit credit;
  int tries = 0;
  for (double now = 0; now < 100e6; now += 10e3) {  // steps of 10 ms; guessing takes twice as long for nothing
    if (credit.allows()) {
      credit.settle(20e3, 10e3);
      now += 10e3;
      ++tries;
    } else {
      credit.pass(10e3);
    }
  }
  EXPECT_NEAR(tries, 100e6 * 0.005 / 10e3, 10) << "half a percent of the time, and what there is to begin with";
}

TEST(DraftCredit, GainsAreCreditButNoLicence) {
  DraftCredit credit;
  for (int i = 0; i < 10'000; ++i) credit.settle(10e3, 20e3);
  int losses = 0;
  for (; credit.allows(); ++losses) credit.settle(20e3, 10e3);
  EXPECT_NEAR(losses, 20, 1);
}

TEST(DraftCredit, ReadingIsPaidInRates) {
  DraftCredit credit;
  credit.invest(400e3);
  credit.settle(10e3, 10e3);
  EXPECT_TRUE(credit.allows()) << "what is read may pay yet";
  for (int i = 0; i < 100; ++i) credit.settle(10e3, 10e3);
  EXPECT_FALSE(credit.allows()) << "it did not";
  credit = DraftCredit();
  credit.invest(400e3);
  for (int i = 0; i < 100; ++i) credit.settle(10e3, 17e3);
  EXPECT_TRUE(credit.allows()) << "it did";
}

}  // namespace
}  // namespace ingot
