#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ingot {

// The front of a vector made for that (Matryoshka), at its length of 1 again; 0 dimensions: all of it.
inline std::vector<float> front_of(std::vector<float> vector, size_t dimensions) {
  if (dimensions == 0 || dimensions >= vector.size()) return vector;
  vector.resize(dimensions);
  const double length = std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0, std::plus<>(),
                                                     [](float a, float b) { return static_cast<double>(a) * b; }));
  for (float& value : vector) value = static_cast<float>(value / std::max(length, 1e-12));
  return vector;
}

}  // namespace ingot
