#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/metal/linear/choices.h"
#include "backend/tuner.h"

namespace ingot::metal {

// Computes a product one way or another: timer.h, or what a test makes up.
class WayTimer {
 public:
  virtual ~WayTimer() = default;
  // What follows is about this product, with the same random inputs every time.
  virtual void begin(const SeenProduct& product) = 0;
  // The first outputs, to the bit. Throws Error where the device cannot compute it so.
  virtual std::vector<std::byte> result(const LinearWay& way) = 0;
  // Microseconds of one product.
  virtual double time(const LinearWay& way) = 0;
  // Of plain copies.
  virtual double memory_gb_s() = 0;
  // Nothing more will be timed for now.
  virtual void end() = 0;
};

// Takes the products that were seen one by one, those of few rows first, and times the candidates of each. What has
// other bits than the kernels' default is left out. The best few are timed again in turns, and one of them is chosen if
// it is faster than the default by more than noise.
class LinearTuner final : public Tuner {
 public:
  LinearTuner(LinearChoices& choices, WayTimer& timer) : choices_(choices), timer_(timer) {}

  bool step() override;
  size_t done() const override;
  size_t all() const override { return choices_.seen().size(); }
  void forget() override;
  std::vector<TunedProduct> table() const override;
  std::vector<std::string> take_notes() override { return std::exchange(notes_, {}); }
  double memory_gb_s() override { return timer_.memory_gb_s(); }

 private:
  struct Trial {
    LinearWay way;
    double us = 0;
  };
  // The next product that has no choice; null: all have.
  const SeenProduct* next() const;
  void begin(const SeenProduct& product);
  void try_way(const SeenProduct& product, const LinearWay& way);
  void decide(const SeenProduct& product);
  void give_up(const SeenProduct& product, const std::string& why);
  void settle(const SeenProduct& product, const LinearWay& way, double us, double default_us);

  LinearChoices& choices_;
  WayTimer& timer_;
  const SeenProduct* product_ = nullptr;  // at hand
  std::vector<LinearWay> untried_;        // the next one last
  std::vector<std::byte> expected_;       // bits of the kernels' default
  std::vector<Trial> trials_;
  std::map<ProductKey, KeptChoice> found_;  // by this run
  std::vector<std::string> notes_;
};

}  // namespace ingot::metal
