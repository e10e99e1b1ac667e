#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/engine.h"
#include "ingot/step_builder.h"
#include "orchestrator/block_pool.h"
#include "orchestrator/drafter.h"
#include "orchestrator/pacer.h"

namespace ingot {

class DraftHead;

// What a head has of one sequence, and what it has not read yet. Row p of the head reads the state of position p and
// the token at p + 1. It has read the positions from `begin` on, before `next`; those before `begin` it never sees:
// they came from a prefix cache, or lie further back than states are kept.
struct HeadCache {
  explicit HeadCache(DraftHead& owner);
  ~HeadCache();
  HeadCache(const HeadCache&) = delete;
  HeadCache& operator=(const HeadCache&) = delete;

  DraftHead& head;
  std::vector<float> states;  // of the positions from `from` on, one row after the other
  int64_t from = 0;
  int64_t begin = 0, next = 0;
  std::vector<int32_t> blocks;
  uint64_t used = 0;  // when it last was: a count

  void forget_before(int64_t position);
  int64_t end() const;  // behind the last position of which the state is known
};

// Guesses by a head of the model (EAGLE-3), which reads what layers of the model made of the text, and then its own
// results. It has an engine and blocks of its own; what it computed of guesses is overwritten by what came instead.
class DraftHead : public Drafter {
 public:
  // `vocab`: of the model that is guessed for.
  DraftHead(std::unique_ptr<Engine> engine, int64_t vocab);
  ~DraftHead() override;

  void offer(Guess& guess, int32_t most) override;
  void fill(std::span<Guess> guesses) override;
  bool shares() const override { return true; }
  double token_us(int32_t sequences) const override;
  double begin_us(const Sequence& sequence) const override;
  double reading_us() const override { return reading_us_; }
  int64_t state_width() const override { return limits_.reads_width; }
  void take_states(Sequence& sequence, int64_t position, std::span<const float> states) override;
  Counts counts() const override { return counts_; }
  void check(std::vector<std::string>& faults) const override;

 private:
  friend struct HeadCache;
  // A guess that is being made.
  struct Line {
    Guess* guess = nullptr;
    HeadCache* cache = nullptr;
    int64_t first = 0, last = 0;  // positions to be read
    int32_t output = -1;          // its guess among the outputs of the last step
  };

  void measure();
  bool begin(Line& line);
  bool extend_blocks(HeadCache& cache, int64_t rows);
  void release(HeadCache& cache);
  bool read(std::vector<Line>& lines);
  bool guess_more(std::vector<Line>& lines);
  void run(std::vector<Line*>& drawing, bool reads);

  const std::unique_ptr<Engine> engine_;
  const EngineLimits& limits_;
  const int64_t vocab_;
  BlockPool pool_;
  StepBuilder builder_;
  Pacer pacer_;
  std::vector<HeadCache*> caches_;
  std::vector<float> own_;  // of the last step's outputs: the states that it gave
  uint64_t uses_ = 0;
  int failures_ = 0;    // in a row
  int64_t offers_ = 0;  // since one was taken
  double reading_us_ = 0;
  Counts counts_;
};

}  // namespace ingot
