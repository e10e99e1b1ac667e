#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ingot/engine.h"
#include "ingot/step_builder.h"
#include "orchestrator/block_pool.h"
#include "orchestrator/pacer.h"
#include "orchestrator/prefix_tiers.h"
#include "orchestrator/request.h"

namespace ingot {

// What a step carries of one sequence.
struct ScheduledSequence {
  std::shared_ptr<Sequence> sequence;
  int32_t rows = 0;
  int64_t end = 0;           // positions that are computed once these rows are
  int32_t first_score = -1;  // its first prompt score among the step's outputs; -1: none
  int32_t scores = 0;
  int64_t scored_from = 0;   // position of the first scored token
  int32_t sample = -1;       // its sampled token among the step's outputs; -1: none
  int32_t drafted = 0;       // tokens that the rows behind that one verify, each with an output of its own
  int32_t pooled = -1;       // its vector among the step's; -1: none
  int32_t first_state = -1;  // its first row among those that give their hidden states; -1: none does
  int32_t states = 0;
  int64_t states_from = 0;  // position of that row
  bool complete = false;    // these rows are the last of its tokens
};

struct ScheduledStep {
  Step step;
  std::vector<ScheduledSequence> sequences;
  int32_t decode_rows = 0;
  int32_t drafts = 0;
  int32_t draft_rows = 0;  // of sequences with a draft, in all
  int32_t prefill_rows = 0;
  int64_t prefill_reads = 0;  // tokens before those rows
  bool follows = false;       // another step was in flight when this was scheduled
  bool waited = false;        // the step before it was waited for first
  double drafting_us = 0;     // in which its drafts were guessed,
  double reading_us = 0;      // and of that, texts read that were new to the draft model
  int32_t hopeful = 0;        // sequences that were waited for, or left out, for a draft's sake
  bool empty() const { return sequences.empty() && !moves_blocks(step); }
};

struct SchedulerCounts {
  uint64_t prefix_queries = 0;  // tokens
  uint64_t prefix_hits = 0;
  uint64_t host_hits = 0, disk_hits = 0;  // of those, in host memory and in files
  uint64_t preemptions = 0;
};

// Decides which rows the next step has: a row for every sequence that decodes first, then prompts in the order of
// priority and turn, as far as the token budget, the blocks and the pacer allow. Knows nothing of text.
//
// Turns: within a priority clients take turns, and the requests of one keep their order. Who has little running comes
// before who has much, and loses its blocks after them. A client alone has everything; who comes later takes seats and
// blocks from whoever has the most, as long as that one keeps no less than the newcomer has then.
class Scheduler {
 public:
  Scheduler(const EngineLimits& limits, PrefixTiers& tiers, bool prefix_caching, double target_step_ms);

  // Puts a sequence among the waiting. A fork (see fork_of) comes with shared blocks.
  void add(std::shared_ptr<Sequence> sequence);
  // A new sequence with the parent's tokens up to `known` and its blocks for the positions below `computed`.
  std::shared_ptr<Sequence> fork_of(const Sequence& parent, int64_t known, int64_t computed);

  // The next step, and the sequences' state as if it had run already. Sequences with a token on the device only are
  // scheduled on it, where the engine chains tokens: the step must then directly follow the one that samples it.
  // `parts`: those that decode are divided among so many steps.
  ScheduledStep schedule(bool follows_step_in_flight, int32_t parts = 1);

  // Called when the tokens of a step became known: tells the pool which blocks are full now.
  void remember_blocks(Sequence& sequence);
  // Keeps a beam's blocks without giving it rows.
  void park(const std::shared_ptr<Sequence>& sequence);
  // Ends a sequence in any state and frees what it holds.
  void retire(const std::shared_ptr<Sequence>& sequence);
  // A step failed: what any block contains is unknown, and whoever holds some is computed again.
  void start_over();
  // A step was waited for, or never will be: its saves and loads are over. `move_us`: what they took; 0: not known.
  void finish_moves(const Step& step, bool good, double move_us = 0) {
    tiers_.finish(step, good);
    tiers_.learn_price(step.block_saves.size() + step.block_loads.size(), move_us);
  }
  bool has_unsaved() const { return tiers_.has_unsaved(); }

  int32_t decoding() const;  // running sequences whose prompts are computed
  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  const BlockPool& pool() const { return pool_; }
  Pacer& pacer() { return pacer_; }
  const Pacer& pacer() const { return pacer_; }
  const SchedulerCounts& counts() const { return counts_; }

  // Appends a line for each fault of pool, tables, hashes and slots. `alive` is every sequence that may hold something.
  void check(std::span<const std::shared_ptr<Sequence>> alive, std::vector<std::string>& faults) const;

 private:
  struct Earlier {
    bool operator()(const std::shared_ptr<Sequence>& a, const std::shared_ptr<Sequence>& b) const;
  };
  using Queue = std::set<std::shared_ptr<Sequence>, Earlier>;
  struct Client {
    Queue running, waiting;
    uint64_t admitted = 0;   // when it last was: a count of admissions
    int64_t blocks() const;  // of those running
  };

  // Between the queues; `to` decides which. A sequence is in one at most.
  void move(const std::shared_ptr<Sequence>& sequence, Sequence::State to);
  Client& client_of(const Sequence& sequence) { return clients_[sequence.request->spec.client]; }
  std::vector<std::shared_ptr<Sequence>> running_by_turn() const;
  std::shared_ptr<Sequence> next_waiting() const;
  void make_room();
  bool take_from_richest(const Sequence& poor, bool seat, int64_t blocks);

  void schedule_decodes(ScheduledStep& scheduled);
  bool has_room_for_draft(Sequence& sequence, int32_t draft_rows);
  int32_t part_of_prompts() const;
  void schedule_prompts(ScheduledStep& scheduled);
  bool admit(const std::shared_ptr<Sequence>& sequence);
  void find_prefix(Sequence& sequence);
  bool place_loads(Sequence& sequence);
  bool look_in_files(Sequence& sequence);
  void count_tier_hits(const Sequence& sequence);
  void load_blocks();
  bool load_blocks(Sequence& sequence);
  BlockContent content_of(const Sequence& sequence, int64_t block) const;
  bool extend_blocks(Sequence& sequence, int64_t length, bool may_preempt);
  bool make_writable(Sequence& sequence, int64_t position, bool may_preempt);
  int32_t allocate(const Sequence& wanting, bool may_preempt);
  bool reclaim(const Sequence& wanting, bool may_preempt);
  void take_rows(ScheduledStep& scheduled, const std::shared_ptr<Sequence>& sequence, int32_t rows);
  void take_draft(ScheduledStep& scheduled, const std::shared_ptr<Sequence>& sequence);
  void ask_states(ScheduledSequence& part, int32_t first, int64_t start);
  void sample_row(Sequence& sequence, int32_t row, size_t ahead = 0);
  int32_t outputs() const { return static_cast<int32_t>(builder_.step().sample_rows.size()); }  // of the step so far
  void extend_hashes(Sequence& sequence);
  BlockHash parent_hash(const Sequence& sequence, int64_t block) const;
  void release(Sequence& sequence);
  // Puts a running sequence back among the waiting, without blocks: it will be computed again.
  void preempt(const std::shared_ptr<Sequence>& sequence);
  bool wants_row(const Sequence& sequence) const;

  EngineLimits limits_;
  PrefixTiers& tiers_;
  bool prefix_caching_;
  BlockPool pool_;
  Pacer pacer_;
  StepBuilder builder_;
  Queue running_, waiting_, parked_;
  uint64_t admissions_ = 0;
  std::map<std::string, Client> clients_;           // those with something running or waiting
  std::vector<std::shared_ptr<Sequence>> by_turn_;  // of this step's decodes; the last lose their blocks first
  std::vector<int32_t> free_slots_;
  int64_t list_words_ = 0;         // of the running sequences
  int64_t reset_words_ = 0;        // of this step's sampler resets
  std::vector<BlockCopy> copies_;  // of this step
  bool follows_ = false;
  int32_t parts_ = 1;
  SchedulerCounts counts_;
};

}  // namespace ingot
