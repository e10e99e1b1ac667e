#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/engine.h"
#include "orchestrator/engine_drafter.h"

namespace ingot {

class DraftHead;

// What a head has of one sequence, and what it has not read yet. Row p of the head reads the state of position p and
// the token at p + 1. It has read the positions from `begin` on, before `next`; those before `begin` it never sees:
// they came from a prefix cache, or lie further back than states are kept.
struct HeadCache : DraftBlocks {
  explicit HeadCache(DraftHead& owner);
  void forget() override { begin = next = 0; }
  int64_t filled() const override { return next - begin; }
  void check(std::vector<std::string>& faults) const override;

  const int64_t width;        // of a row's states
  std::vector<float> states;  // of the positions from `from` on, one row after the other
  int64_t from = 0;
  int64_t begin = 0, next = 0;

  void forget_before(int64_t position);
  int64_t end() const;  // behind the last position of which the state is known
};

// Guesses by a head of the model (EAGLE-3), which reads what layers of the model made of the text, and then its own
// results.
class DraftHead : public EngineDrafter {
 public:
  DraftHead(std::unique_ptr<Engine> engine, int64_t vocab);

  void offer(Guess& guess, int32_t most) override;
  void fill(std::span<Guess> guesses) override;
  double begin_us(const Sequence& sequence) const override;
  int64_t state_width() const override { return limits_.reads_width; }
  void take_states(Sequence& sequence, int64_t position, std::span<const float> states) override;

 private:
  // A guess that is being made.
  struct Line {
    Guess* guess = nullptr;
    HeadCache* cache = nullptr;
    int64_t first = 0, last = 0;  // positions to be read
    int32_t output = -1;          // its guess among the outputs of the last step
  };

  bool begin(Line& line);
  bool read(std::vector<Line>& lines);
  bool guess_more(std::vector<Line>& lines);
  void run(std::vector<Line*>& drawing, bool reads);

  std::vector<float> own_;  // of the last step's outputs: the states that it gave
};

}  // namespace ingot
