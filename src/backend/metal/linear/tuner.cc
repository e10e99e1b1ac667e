#include "backend/metal/linear/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr size_t kFinalists = 4;     // the default among them
constexpr int kRounds = 3;           // of the finalists
constexpr double kNoise = 0.99;      // of the default's time: what is not below it is not faster
constexpr double kMostSlower = 1.3;  // than the best: not looked at again

}  // namespace

const SeenProduct* LinearTuner::next() const {
  const SeenProduct* best = nullptr;
  const auto earlier = [](const SeenProduct& a, const SeenProduct& b) {
    if (a.key.rows != b.key.rows) return a.key.rows < b.key.rows;
    return a.weight_bytes() > b.weight_bytes();
  };
  for (const SeenProduct& product : choices_.seen()) {
    if (found_.contains(product.key) || choices_.file().find(kept_name(product.key)) != nullptr) continue;
    if (best == nullptr || earlier(product, *best)) best = &product;
  }
  return best;
}

bool LinearTuner::step() {
  if (product_ == nullptr) {
    product_ = next();
    if (product_ == nullptr) {
      timer_.end();
      return false;
    }
    begin(*product_);
  } else if (!untried_.empty()) {
    const LinearWay way = untried_.back();
    untried_.pop_back();
    try_way(*product_, way);
  } else {
    decide(*product_);
  }
  return true;
}

// The default stays, and is not kept: another run may find more.
void LinearTuner::give_up(const SeenProduct& product, const std::string& why) {
  if (!why.empty()) notes_.push_back(fmt::format("{} cannot be timed: {}", kept_name(product.key), why));
  found_[product.key] = {.way = name_of(default_way(product.shape, choices_.family(), product.library))};
  product_ = nullptr;
}

void LinearTuner::begin(const SeenProduct& product) {
  trials_.clear();
  untried_ = candidate_ways(product.shape, choices_.family(), product.library);
  std::reverse(untried_.begin(), untried_.end());
  try {
    timer_.begin(product);
    expected_ = timer_.result({.library = false, .variant = linear_variant(product.shape, choices_.family())});
  } catch (const Error& error) {
    give_up(product, error.what());
  }
}

void LinearTuner::try_way(const SeenProduct& product, const LinearWay& way) {
  try {
    if (timer_.result(way) != expected_) {
      notes_.push_back(
          fmt::format("{}: {} gives other bits here, and is left out", kept_name(product.key), name_of(way)));
      return;
    }
    trials_.push_back({way, timer_.time(way)});
  } catch (const Error&) {
    // More threads than there are registers for, as a rule: nothing to tell anybody.
  }
}

void LinearTuner::decide(const SeenProduct& product) {
  if (trials_.empty()) return give_up(product, "the device runs none of its ways");
  const LinearWay usual = default_way(product.shape, choices_.family(), product.library);
  std::sort(trials_.begin(), trials_.end(), [](const Trial& a, const Trial& b) { return a.us < b.us; });
  const double best_us = trials_.front().us;
  std::vector<Trial> finalists;
  size_t others = 0;
  for (const Trial& trial : trials_)
    if (trial.way == usual || (trial.us <= kMostSlower * best_us && ++others < kFinalists))
      finalists.push_back({trial.way, std::numeric_limits<double>::max()});
  try {
    for (int round = 0; round < kRounds && finalists.size() > 1; ++round)
      for (Trial& trial : finalists) trial.us = std::min(trial.us, timer_.time(trial.way));
  } catch (const Error& error) {
    return give_up(product, error.what());
  }
  if (finalists.size() == 1) finalists.front().us = best_us;
  const auto best =
      std::min_element(finalists.begin(), finalists.end(), [](const auto& a, const auto& b) { return a.us < b.us; });
  const auto same =
      std::find_if(finalists.begin(), finalists.end(), [&usual](const Trial& trial) { return trial.way == usual; });
  // A default with other bits is no choice.
  const bool stays = same != finalists.end() && best->us >= kNoise * same->us;
  settle(product, stays ? usual : best->way, stays ? same->us : best->us, same != finalists.end() ? same->us : 0);
}

void LinearTuner::settle(const SeenProduct& product, const LinearWay& way, double us, double default_us) {
  choices_.choose(product.key, way);
  const KeptChoice kept{.way = name_of(way), .us = us, .default_us = default_us};
  found_[product.key] = kept;
  product_ = nullptr;
  if (us <= 0) return;  // a device that only compiles
  try {
    choices_.file().keep(kept_name(product.key), kept);
  } catch (const Error& error) {
    notes_.push_back(fmt::format("a choice is not kept: {}", error.what()));
  }
}

size_t LinearTuner::done() const {
  size_t done = 0;
  for (const SeenProduct& product : choices_.seen())
    if (found_.contains(product.key) || choices_.file().find(kept_name(product.key)) != nullptr) ++done;
  return done;
}

void LinearTuner::forget() {
  product_ = nullptr;
  found_.clear();
  choices_.forget();
}

std::vector<TunedProduct> LinearTuner::table() const {
  std::vector<TunedProduct> lines;
  for (const SeenProduct& product : choices_.seen()) {
    const auto found = found_.find(product.key);
    const KeptChoice* kept = found != found_.end() ? &found->second : choices_.file().find(kept_name(product.key));
    if (kept == nullptr) continue;
    const int64_t matrices = product.key.gated ? 2 : 1;
    lines.push_back({.product = name_of(product.key),
                     .rows = product.shape.rows,
                     .way = kept->way,
                     .default_way = name_of(default_way(product.shape, choices_.family(), product.library)),
                     .us = kept->us,
                     .default_us = kept->default_us,
                     .bytes = product.weight_bytes(),
                     .operations = 2.0 * static_cast<double>(matrices * product.shape.rows * product.key.outputs) *
                                   static_cast<double>(product.key.cols),
                     .kept = found == found_.end()});
  }
  std::sort(lines.begin(), lines.end(), [](const TunedProduct& a, const TunedProduct& b) {
    return a.product != b.product ? a.product < b.product : a.rows < b.rows;
  });
  return lines;
}

}  // namespace ingot::metal
