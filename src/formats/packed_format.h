#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ingot {

// How the matrices of a safetensors checkpoint were packed into few bits by others, as its config.json says.
struct PackedFormat {
  enum class Method { none, awq, gptq, mlx };
  struct Width {
    int bits = 4;              // 4 or 8
    int64_t group_size = 128;  // columns that share a scale, a multiple of 32; -1: all of a row
  };

  Method method = Method::none;
  Width width;
  std::map<std::string, Width, std::less<>> modules;  // mlx: those that differ
  bool symmetric = false;                             // gptq: every zero point is the middle level
  bool zero_minus_one = true;                         // gptq: zero points are stored less one (version 1)
};

}  // namespace ingot
