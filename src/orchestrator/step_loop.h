#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/fair_share.h"
#include "ingot/engine.h"
#include "ingot/llm.h"
#include "orchestrator/drafter.h"
#include "orchestrator/grammars.h"
#include "orchestrator/guided_text.h"
#include "orchestrator/part_count.h"
#include "orchestrator/request.h"
#include "orchestrator/scheduler.h"
#include "orchestrator/speculator.h"

namespace ingot {

// The thread that owns the engine: admit, schedule, submit, (the device runs; meanwhile the oldest step is) wait,
// commit, emit. Everything it shares with other threads goes through the inbox or the statistics, each under its own
// lock.
class StepLoop {
 public:
  // `draft_model`: or a head; null unless LlmOptions::speculate wants one.
  StepLoop(Engine& engine, PrefixTiers& tiers, std::shared_ptr<Drafter> draft_model, const Tokenizer* tokenizer,
           Grammars& grammars, const LlmOptions& options, uint64_t most_requests, uint64_t most_host_bytes);
  ~StepLoop();  // cancels what is running

  // From any thread.
  void add(std::unique_ptr<Request> request);
  void wake();
  std::vector<std::string> check_integrity();
  LlmStats stats() const;

  // What clients share: taken before add(), given back when a request is complete.
  FairShare places;      // requests waiting or running
  FairShare host_bytes;  // that they hold on the host

 private:
  struct InFlight {
    ScheduledStep scheduled;
    StepTicket ticket;
  };

  void run();
  bool has_news() const;
  void sleep(std::unique_lock<std::mutex>& inbox);
  void step();
  void admit();
  void begin(Sequence& sequence);
  bool waits_first() const;
  int32_t hopeful() const;
  int32_t parts() const;
  void propose_drafts();
  void wait_for_draft_masks();
  void jump_ahead();
  bool submit(ScheduledStep scheduled);
  void finish_oldest();
  void commit(const ScheduledStep& scheduled, const StepResult& result);
  void emit();

  void commit_sequence(const ScheduledSequence& part, const StepResult& result, Clock::time_point now);
  std::vector<int32_t> take_tokens(const ScheduledSequence& part, const StepResult& result);
  void take_states(const ScheduledSequence& part, const StepResult& result);
  bool came_true(int32_t drawn, int32_t guessed);
  void settle(const ScheduledStep& scheduled, const StepStats& stats, uint64_t accepted);
  void look(const ScheduledStep& scheduled);
  void count_tokens(Request& request, int64_t tokens);
  void note_reading(const ScheduledSequence& part, Clock::time_point now);
  void note_token(Sequence& sequence, Clock::time_point now, bool counts);
  void advance(Request& request);
  void fork_choices(Request& request);
  void end_request(Request& request, FinishReason reason, const std::string& error = "");
  void complete(Request& request, FinishReason reason);
  void fail(const ScheduledStep& scheduled, const std::string& reason);
  void withdraw_all();
  void count_failure(const std::string& reason);
  void check_ends(Clock::time_point now);
  void update_stats(const ScheduledStep& scheduled, const StepStats& step);

  Engine& engine_;
  const Tokenizer* tokenizer_;
  const LlmOptions options_;
  PrefixTiers& tiers_;
  MaskWorkers masks_;
  Scheduler scheduler_;
  const std::shared_ptr<Drafter> draft_model_;
  Speculator speculator_;
  std::mt19937_64 pretended_;                       // LlmOptions::draft_acceptance
  std::vector<std::unique_ptr<Request>> requests_;  // alive, by arrival
  std::deque<InFlight> in_flight_;                  // oldest first
  PartCount part_count_;

  mutable std::mutex inbox_mutex_;
  std::condition_variable inbox_changed_;
  std::vector<std::unique_ptr<Request>> inbox_;
  std::vector<std::promise<std::vector<std::string>>> checks_;
  bool woken_ = false;
  bool stop_ = false;
  bool tunes_;  // the engine may have something left to time

  mutable std::mutex stats_mutex_;
  LlmStats stats_;

  std::thread thread_;
};

}  // namespace ingot
