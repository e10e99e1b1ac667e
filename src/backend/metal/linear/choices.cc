#include "backend/metal/linear/choices.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot::metal {
namespace {

// Of experts, whose choice serves any number of rows: about what eight sequences ask for.
constexpr int64_t kTimedPairs = 64;

// Whether a product of `rows` rows says more about the bucket than one of `timed`.
bool better_rows(const LinearShape& shape, int64_t timed) {
  if (shape.experts == 0) return shape.rows > timed;
  return timed < kTimedPairs ? shape.rows > timed : shape.rows >= kTimedPairs && shape.rows < timed;
}

}  // namespace

double SeenProduct::weight_bytes() const {
  const Weights& one = weights.front();
  double bytes = static_cast<double>(one.weight->view(*one.segment).bytes);
  if (one.up != nullptr) bytes += static_cast<double>(one.up->view(*one.up_segment).bytes);
  // Those of experts that have rows; when there are few pairs, each its own.
  if (shape.experts > 0)
    bytes *= static_cast<double>(std::min(shape.experts, shape.rows)) / static_cast<double>(shape.experts);
  return bytes;
}

LinearWay LinearChoices::way(const LinearShape& shape, bool library) const {
  if (forced_) return *forced_;
  if (!chosen_.empty())
    if (const auto found = chosen_.find(ProductKey::of(shape)); found != chosen_.end()) return found->second;
  return default_way(shape, family_, library);
}

void LinearChoices::note(const LinearShape& shape, const Operands& operands, bool library) {
  if (forced_) return;
  const ProductKey key = ProductKey::of(shape);
  const auto [place, fresh] = places_.try_emplace(key, seen_.size());
  if (fresh) {
    seen_.push_back({.key = key, .library = library, .shape = shape, .operands = operands, .weights = {}});
    if (const KeptChoice* kept = file_.find(kept_name(key)))
      for (const LinearWay& way : candidate_ways(shape, family_, library))
        if (name_of(way) == kept->way) choose(key, way);
  }
  SeenProduct& product = seen_[place->second];
  if (better_rows(shape, product.shape.rows)) {
    product.shape = shape;
    product.operands = operands;
  }
  const SeenProduct::Weights weights{operands.weight, operands.segment, operands.up, operands.up_segment};
  if (std::find(product.weights.begin(), product.weights.end(), weights) == product.weights.end())
    product.weights.push_back(weights);
}

void LinearChoices::forget() {
  chosen_.clear();
  file_.forget();
}

std::string kept_name(const ProductKey& key) { return fmt::format("{}, {} rows", name_of(key), key.rows); }

}  // namespace ingot::metal
