#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ingot {

// What an operation multiplies.
enum class Arithmetic : uint8_t { none, int8, bf16, f32 };

// The limits of a machine, to hold operations against; 0: not known.
struct Roofs {
  double read_gb_s = 0;
  double int8_gop_s = 0, bf16_gop_s = 0, f32_gop_s = 0;  // a multiplication and an addition are two

  double of(Arithmetic arithmetic) const;
};

// Where the time of steps went, by kernel or operation.
class Profile {
 public:
  struct Line {
    uint64_t dispatches = 0;
    double seconds = 0;
    uint64_t bytes = 0;     // of weights and of the cache
    double operations = 0;  // multiplications and additions
    Arithmetic arithmetic = Arithmetic::none;
  };

  // `name`: the kernel, behind its role where it has one: "qkv linear".
  void add(const std::string& name, const Line& line);
  void end_step() { ++steps_; }

  const std::map<std::string, Line>& lines() const { return lines_; }
  uint64_t steps() const { return steps_; }
  double seconds() const;  // of all of them
  // Kernels by total time: dispatches, milliseconds, share, bytes and operations a second, and their shares of the
  // roofs. Empty when nothing ran.
  std::string table(const Roofs& roofs = {}) const;

 private:
  std::map<std::string, Line> lines_;
  uint64_t steps_ = 0;
};

}  // namespace ingot
