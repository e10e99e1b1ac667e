#include "model/stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace ingot {
namespace {

// What is bad about a stage, the worse things first; less is better.
struct Burden {
  double lacks = std::numeric_limits<double>::max();  // bytes, or 1: it is not to be
  double costs = std::numeric_limits<double>::max();

  bool operator<(const Burden& other) const { return std::pair(lacks, costs) < std::pair(other.lacks, other.costs); }
};

Burden worse(const Burden& a, const Burden& b) { return {std::max(a.lacks, b.lacks), std::max(a.costs, b.costs)}; }

struct Cut {
  std::vector<Range> stages;
  Burden burden;  // of the worst of them
};

// The cut whose worst stage has the least burden: burden_of(stage, its cost).
template <typename F>
Cut best_cut(const StageCosts& costs, size_t stages, const F& burden_of) {
  const size_t layers = costs.layers.size();
  // best[s][n]: for the first n layers in the first s + 1 stages, and where the last of those begins.
  struct Choice {
    Burden burden;
    size_t begin = 0;
  };
  std::vector<std::vector<Choice>> best(stages, std::vector<Choice>(layers + 1));
  for (size_t s = 0; s < stages; ++s) {
    for (size_t end = s + 1; end + (stages - 1 - s) <= layers; ++end) {
      PartCost cost{.bytes = costs.every_stage};
      if (s == 0) cost.add(costs.first.bytes, 0);
      if (s + 1 == stages) cost.bytes += costs.last.bytes, cost.work += costs.last.work;
      for (size_t begin = end; begin-- > s;) {
        cost.bytes += costs.layers[begin].bytes;
        cost.work += costs.layers[begin].work;
        if (s == 0 && begin > 0) continue;
        const Burden own = burden_of(s, cost);
        const Burden all = s == 0 ? own : worse(own, best[s - 1][begin].burden);
        if (all < best[s][end].burden) best[s][end] = {all, begin};
      }
    }
  }
  Cut cut{.stages = std::vector<Range>(stages), .burden = best[stages - 1][layers].burden};
  size_t end = layers;
  for (size_t s = stages; s-- > 0;) {
    const size_t begin = best[s][end].begin;
    cut.stages[s] = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
    end = begin;
  }
  return cut;
}

}  // namespace

std::vector<Range> cut_stages(const StageCosts& costs, std::span<const StageHost> hosts) {
  if (hosts.size() > costs.layers.size())
    throw_error(ErrorKind::declined, "--pp {}: this model has {} layers, and each stage needs one", hosts.size(),
                costs.layers.size());
  const auto time_of = [&](size_t s, const PartCost& cost) {
    const uint64_t memory = hosts[s].memory;
    return Burden{memory > 0 && cost.bytes > memory ? static_cast<double>(cost.bytes - memory) : 0,
                  cost.work / hosts[s].speed};
  };
  const Burden fastest = best_cut(costs, hosts.size(), time_of).burden;
  // Whole layers leave a choice.
  constexpr double kAlike = 1.001;
  return best_cut(costs, hosts.size(),
                  [&](size_t s, const PartCost& cost) {
                    const Burden own = time_of(s, cost);
                    const bool is_worse = own.lacks > fastest.lacks || own.costs > kAlike * fastest.costs;
                    const auto memory = static_cast<double>(std::max<uint64_t>(1, hosts[s].memory));
                    return Burden{is_worse ? 1.0 : 0.0, static_cast<double>(cost.bytes) / memory};
                  })
      .stages;
}

std::vector<Range> given_stages(std::span<const int> layers, int stages, int64_t all) {
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  const bool empty = std::ranges::any_of(layers, [](int n) { return n < 1; });
  if (static_cast<int>(layers.size()) != stages || sum != all || empty)
    throw_error(ErrorKind::bad_call, "--pp-layers {}: must be {} numbers, one a stage, {} layers in all",
                fmt::join(layers, ","), stages, all);
  std::vector<Range> ranges;
  for (int64_t begin = 0; const int count : layers) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

}  // namespace ingot
