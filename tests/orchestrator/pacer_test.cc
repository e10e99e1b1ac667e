#include "orchestrator/pacer.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

// A device where a decode row costs 1 ms, a step 2 ms and a prefill row 0.5 ms.
double cost_us(int32_t decode, int32_t prefill) { return 2000 + 1000.0 * decode + 500.0 * prefill; }

TEST(Pacer, KeepsStepsWithinTheTarget) {
  for (const double target_ms : {0.0, 30.0}) {
    Pacer pacer(target_ms, 16, 2048);
    pacer.learn(0, 256, cost_us(0, 256));
    for (int i = 0; i < 10; ++i) pacer.learn(8, 0, cost_us(8, 0));
    for (int i = 0; i < 60; ++i) pacer.learn(8, pacer.prefill_rows(8), cost_us(8, pacer.prefill_rows(8)));
    const double step = cost_us(8, pacer.prefill_rows(8));
    const double target = target_ms > 0 ? target_ms * 1000 : Pacer::kStretch * cost_us(8, 0);
    EXPECT_LE(step, target * 1.05);
    EXPECT_GE(step, target * 0.8);
  }
}

TEST(Pacer, FollowsACostThatRises) {
  Pacer pacer(0, 8, 2048);
  pacer.learn(4, 0, 5000);
  for (int i = 0; i < 20; ++i) pacer.learn(4, 16, 5000 + 16 * 100);
  const int32_t before = pacer.prefill_rows(4);
  for (int i = 0; i < 30; ++i) pacer.learn(4, 16, 5000 + 16 * 400);
  EXPECT_LT(pacer.prefill_rows(4), before / 3);
}

TEST(Pacer, LooksNowAndThenWhatStreamsCostByNow) {
  Pacer pacer(0, 8, 2048);
  pacer.learn(8, 0, 10000);
  int32_t pure = 0;
  for (int i = 0; i < 1000; ++i) {  // the streams grow: their share of a step doubles
    const int32_t rows = pacer.prefill_rows(8);
    pure += rows == 0;
    pacer.learn(8, rows, 10000 + 10.0 * i + 200 * rows);
  }
  EXPECT_NEAR(pacer.decode_us(8), 20000, 3000);
  EXPECT_NEAR(pure, 1000 / 33, 2);
  EXPECT_GT(pacer.prefill_rows(8), 40);
}

TEST(Pacer, ManyPromptsForFewStreamsGetMoreOfAStep) {
  Pacer pacer(0, 16, 2048);
  pacer.learn(2, 0, 10000);
  pacer.learn(2, 10, 20000);
  EXPECT_EQ(pacer.prefill_rows(2, 1), pacer.prefill_rows(2));
  EXPECT_GT(pacer.prefill_rows(2, 4), 2 * pacer.prefill_rows(2));
  EXPECT_LE(pacer.prefill_rows(2, 1000), 30);
}

// The rest of a known prompt: a step for every few rows of it would read all that is known each time.
TEST(Pacer, TheLastRowsOfALongPromptAreNotDivided) {
  constexpr int64_t kKnown = 4000;
  Pacer pacer(0, 8, 2048);
  pacer.learn(0, 16, 16 * 500);
  pacer.learn(4, 0, 4000);
  EXPECT_FALSE(pacer.undivided(16, kKnown)) << "nobody knows what reading costs";
  const int32_t rows = pacer.prefill_rows(4);
  EXPECT_LT(rows, 8);
  pacer.learn(4, rows, 4000 + 500 * rows + 6000, kKnown);
  EXPECT_TRUE(pacer.undivided(16, kKnown));
  EXPECT_FALSE(pacer.undivided(16, kKnown / 10)) << "there is little to read";
  EXPECT_FALSE(pacer.undivided(33, 10 * kKnown)) << "streams do not wait for that many";
  for (int i = 0; i < 100; ++i) pacer.learn(4, rows, 4000 + 500 * rows + 1000, kKnown);
  EXPECT_FALSE(pacer.undivided(16, kKnown)) << "it became cheap";
}

TEST(Pacer, WhatReadingCostsIsExpectedFromStepsOfStreams) {
  Pacer pacer(0, 8, 2048);
  pacer.learn(0, 16, 16 * 500);
  pacer.learn(4, 0, 4000);
  pacer.expect_reading(1);
  EXPECT_TRUE(pacer.undivided(16, 4000));
  EXPECT_FALSE(pacer.undivided(16, 2000));
  pacer.learn(4, 4, 4000 + 4 * 500 + 6000, 4000);
  EXPECT_TRUE(pacer.undivided(16, 2000)) << "by now it was seen";
}

TEST(Pacer, ATargetHoldsForTheLastRowsToo) {
  Pacer pacer(10, 8, 2048);
  pacer.learn(0, 16, 16 * 500);
  pacer.learn(4, 0, 4000);
  pacer.learn(4, 4, 4000 + 4 * 500 + 6000, 4000);
  EXPECT_FALSE(pacer.undivided(16, 4000));
}

TEST(Pacer, APromptAlwaysMovesOn) {
  Pacer pacer(1, 8, 2048);
  pacer.learn(8, 0, 100000);
  pacer.learn(8, 32, 200000);
  EXPECT_GE(pacer.prefill_rows(8), 2);
}

TEST(Pacer, WithoutStreamsStepsMayBeLongButNotEndless) {
  Pacer pacer(0, 8, 4096);
  EXPECT_EQ(pacer.prefill_rows(0), 64) << "nothing is known yet, and someone may press Ctrl-C";
  pacer.learn(0, 1000, 1e6);  // 1 ms a row
  EXPECT_EQ(pacer.prefill_rows(0), 150);
}

TEST(Pacer, TakesTheNearestBatchSizeItKnows) {
  Pacer pacer(0, 16, 2048);
  EXPECT_EQ(pacer.decode_us(4), 0);
  pacer.learn(8, 0, 8000);
  EXPECT_EQ(pacer.decode_us(8), 8000);
  EXPECT_EQ(pacer.decode_us(9), 8000);
  EXPECT_EQ(pacer.decode_us(4), 4000);
}

TEST(Pacer, StepsThatWereNeverSeenCostAsMuchMoreAsExpected) {
  Pacer pacer(0, 64, 2048);
  pacer.expect_rows(16, 12000);
  pacer.expect_rows(32, 12400);
  pacer.expect_rows(64, 14400);
  EXPECT_EQ(pacer.rows_us(16), 12000);
  EXPECT_EQ(pacer.rows_us(48), 13400);
  EXPECT_EQ(pacer.rows_us(96), 16400) << "as it went before";
  for (int i = 0; i < 100; ++i) pacer.learn_rows(16, 15000);  // long texts
  EXPECT_NEAR(pacer.rows_us(16), 15000, 1);
  EXPECT_NEAR(pacer.rows_us(64), 17400, 1);
  for (int i = 0; i < 100; ++i) pacer.learn_rows(20, 15050);
  EXPECT_NEAR(pacer.rows_us(64), 15050 + 14400 - 12100, 1) << "one that is hardly wider says nothing of the widest";
}

TEST(Pacer, TheFirstStepOfASizeIsNotBelievedAtOnce) {
  Pacer pacer(0, 64, 2048);
  pacer.learn_rows(1, 10000);
  pacer.expect_rows(1, 10000);
  pacer.expect_rows(8, 11000);
  pacer.learn_rows(8, 40000);  // the device prepared for it
  EXPECT_LT(pacer.rows_us(8), 15000);
  for (int i = 0; i < 4; ++i) pacer.learn_rows(8, 11000);
  EXPECT_NEAR(pacer.rows_us(8), 11000, 1200);
}

TEST(Pacer, AGapThatWasLongOnceIsForgotten) {
  Pacer pacer(0, 8, 64);
  pacer.learn_gap(50'000);
  for (int i = 0; i < 5000; ++i) pacer.learn(8, 0, 10'000);
  EXPECT_LT(pacer.gap_us(), 5'000);
}

// The machine was busy with something else when the first one was measured.
TEST(Pacer, AFirstGapThatWasLongIsNotBelieved) {
  Pacer pacer(0, 8, 64);
  pacer.learn(1, 0, 100);
  pacer.learn_gap(30'000, 0, 100);
  EXPECT_TRUE(pacer.waiting_pays(1, 0)) << "or none would be measured any more";
  for (int i = 0; i < 20; ++i) pacer.learn_gap(30'000, 0, 100);
  EXPECT_FALSE(pacer.waiting_pays(1, 0)) << "it is always that long";
}

TEST(Pacer, GuessingIsNoGap) {
  Pacer pacer(0, 8, 64);
  pacer.learn_gap(28'163, 28'100);
  EXPECT_NEAR(pacer.gap_us(), 63, 1);
  pacer.learn_gap(500, 800);  // it was guessed while the device worked
  EXPECT_NEAR(pacer.gap_us(), 63, 1);
}

TEST(Pacer, WaitsForGuidedRowsWhereThatGivesMoreTokens) {
  Pacer pacer(0, 16, 2048);
  EXPECT_FALSE(pacer.waiting_pays(0, 4));
  EXPECT_TRUE(pacer.waiting_pays(4, 4)) << "to see what it costs";
  pacer.learn(8, 0, 10000);
  pacer.learn_gap(1000);
  EXPECT_TRUE(pacer.waiting_pays(8, 0));
  EXPECT_TRUE(pacer.waiting_pays(4, 4));   // 8 tokens in 11 ms beat 6 in 10 ms
  EXPECT_FALSE(pacer.waiting_pays(1, 7));  // 7.5 in 10 ms beat 8 in 11 ms
  pacer.learn_gap(0);                      // nothing was measured
  EXPECT_FALSE(pacer.waiting_pays(1, 7));
}

}  // namespace
}  // namespace ingot
