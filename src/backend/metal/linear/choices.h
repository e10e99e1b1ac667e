#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/metal/linear/candidates.h"
#include "backend/metal/linear/choice_file.h"
#include "backend/metal/linear/linear.h"

namespace ingot::metal {

// A product that steps have, as rehearsals show it.
struct SeenProduct {
  struct Weights {
    const PackedMatrix* weight = nullptr;
    const Segment* segment = nullptr;
    const PackedMatrix* up = nullptr;
    const Segment* up_segment = nullptr;
    friend bool operator==(const Weights&, const Weights&) = default;
  };
  ProductKey key;
  bool library = false;          // there is one that takes it
  LinearShape shape;             // with the rows that it is timed with
  Operands operands;             // of that shape
  std::vector<Weights> weights;  // of all layers

  // Of one of them, in bytes.
  double weight_bytes() const;
};

// Which way each product goes: what was chosen, else the default. Steps only look; choices are made between them.
class LinearChoices {
 public:
  LinearChoices(int family, ChoiceFile file) : family_(family), file_(std::move(file)) {}

  // `library`: there is one that takes the product.
  LinearWay way(const LinearShape& shape, bool library) const;
  // In a rehearsal: there is such a product. A kept choice for it comes into force.
  void note(const LinearShape& shape, const Operands& operands, bool library);

  const std::vector<SeenProduct>& seen() const { return seen_; }
  int family() const { return family_; }
  ChoiceFile& file() { return file_; }
  void choose(const ProductKey& key, const LinearWay& way) { chosen_[key] = way; }
  void forget();
  // While set, every product goes so, and none is noted.
  void force(const std::optional<LinearWay>& way) { forced_ = way; }

 private:
  int family_;
  ChoiceFile file_;
  std::vector<SeenProduct> seen_;
  std::map<ProductKey, size_t> places_;  // in seen_
  std::map<ProductKey, LinearWay> chosen_;
  std::optional<LinearWay> forced_;
};

// How a product is called in the file of choices.
std::string kept_name(const ProductKey& key);

}  // namespace ingot::metal
