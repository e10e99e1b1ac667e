#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace ingot::testing {

// A whole file; empty when it is not there.
inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ingot::testing
