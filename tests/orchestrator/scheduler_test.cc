#include "orchestrator/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "orchestrator/guided_text.h"
#include "orchestrator/structured_rig.h"

namespace ingot {
namespace {

constexpr int32_t kBlock = 4;

// Drives a scheduler without an engine: every row that is sampled becomes the same token.
class SchedulerRig {
 public:
  explicit SchedulerRig(int32_t blocks) : scheduler_(limits(blocks), tiers_, false, 0) {}

  std::shared_ptr<Sequence> add(int64_t prompt_len) {
    auto request = std::make_unique<Request>();
    request->arrival = requests_.size() + 1;
    request->prompt_len = prompt_len;
    request->max_tokens = 32;
    auto sequence = std::make_shared<Sequence>();
    sequence->request = request.get();
    sequence->tokens.assign(static_cast<size_t>(prompt_len), static_cast<int32_t>(request->arrival));
    requests_.push_back(std::move(request));
    return enter(std::move(sequence));
  }
  std::shared_ptr<Sequence> fork(const Sequence& parent) {
    std::shared_ptr<Sequence> child = scheduler_.fork_of(parent, parent.known(), parent.computed);
    child->choice = parent.choice + 1;
    return enter(std::move(child));
  }
  ScheduledStep schedule() { return scheduler_.schedule(false); }
  ScheduledStep step() {
    ScheduledStep scheduled = schedule();
    for (const ScheduledSequence& part : scheduled.sequences) {
      if (part.sample < 0) continue;
      part.sequence->tokens.push_back(7);
      part.sequence->in_flight = 0;
      part.sequence->in_flight_row = -1;
    }
    return scheduled;
  }
  std::vector<std::string> faults() const {
    std::vector<std::string> faults;
    scheduler_.check(alive_, faults);
    return faults;
  }
  const BlockPool& pool() const { return scheduler_.pool(); }
  Pacer& pacer() { return scheduler_.pacer(); }

 private:
  static EngineLimits limits(int32_t blocks) {
    EngineLimits limits;
    limits.max_model_len = 64;
    limits.max_step_tokens = 64;
    limits.max_seqs = 2;
    limits.max_sample_rows = 8;
    limits.max_list_words = 1000;
    limits.num_blocks = blocks;
    limits.block_size = kBlock;
    limits.vocab = 100;
    return limits;
  }
  std::shared_ptr<Sequence> enter(std::shared_ptr<Sequence> sequence) {
    alive_.push_back(sequence);
    scheduler_.add(sequence);
    return sequence;
  }

  PrefixTiers tiers_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<std::shared_ptr<Sequence>> alive_;
};

// Room for a copy of a shared block may come from those who shared it: then no copy is needed, and its block goes back.
TEST(Scheduler, ABlockThatIsNoLongerSharedIsNotCopied) {
  SchedulerRig rig(5);
  const std::shared_ptr<Sequence> first = rig.add(6), later = rig.add(8);
  rig.step();  // both prompts: two blocks each
  rig.step();  // `later` begins its third block, the last one
  ASSERT_EQ(first->computed, 7);
  ASSERT_EQ(later->blocks.size(), 3u);
  const std::vector<int32_t> blocks = first->blocks;
  const std::shared_ptr<Sequence> fork = rig.fork(*first);  // waits: two are running
  ASSERT_EQ(fork->blocks, blocks);
  rig.step();
  EXPECT_EQ(first->computed, 8);
  EXPECT_EQ(first->blocks, blocks) << "copied although nobody else had it";
  EXPECT_THAT(rig.faults(), ::testing::IsEmpty());
}

// Beside a stream: by twos, until what is before the rest costs so much that it is not read again for less than all of
// it.
TEST(Scheduler, TheRestOfAPromptIsNotDivided) {
  SchedulerRig rig(16);
  rig.add(6);
  rig.step();
  rig.pacer().learn(0, 16, 16 * 500);
  rig.pacer().learn(1, 0, 2000);
  rig.pacer().expect_reading(1000);
  rig.add(20);
  std::vector<std::pair<int32_t, int64_t>> steps;
  for (int i = 0; i < 4; ++i) {
    const ScheduledStep scheduled = rig.step();
    steps.emplace_back(scheduled.prefill_rows, scheduled.prefill_reads);
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(std::pair(2, 0), std::pair(2, 2), std::pair(16, 4), std::pair(0, 0)));
  EXPECT_THAT(rig.faults(), ::testing::IsEmpty());
}

// The masks of a draft may be made, or fewer of them, after the loop looked for them and before the step is scheduled.
TEST(Scheduler, TakesOfADraftWhatHasMasks) {
  const auto llm = testing::structured_llm(testing::structured_options());
  StructuredOutput what = testing::structured(StructuredOutput::Kind::choice, "", {"abc", "abd"});
  llm->compile(what);
  MaskWorkers workers(2, [] {});
  for (const std::vector<int32_t>& masked : {std::vector<int32_t>{}, std::vector<int32_t>{'a', 'x'}}) {
    SchedulerRig rig(8);
    const std::shared_ptr<Sequence> sequence = rig.add(6);
    rig.step();
    sequence->guide = std::make_shared<GuidedText>(what.compiled, *llm->tokenizer(), false);
    const auto wait = [&] {
      while (sequence->guide->pending()) std::this_thread::yield();
    };
    workers.post(sequence->guide, {});
    wait();
    if (!masked.empty()) workers.post_draft(sequence->guide, masked);
    wait();
    sequence->draft = {'a', 'x', 'c'};
    EXPECT_EQ(rig.schedule().step.num_scheduled_tokens, masked.empty() ? 1 : 2);
  }
}

}  // namespace
}  // namespace ingot
