#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ingot::jinja {

// Bounds that keep a hostile template from using up time, memory or stack. Real templates stay far below all of them.
struct Limits {
  int64_t max_steps = 10'000'000;             // nodes evaluated, items iterated, and more for work on long texts
  size_t max_memory = size_t{512} << 20;      // bytes of all values alive
  size_t max_output = size_t{64} << 20;       // bytes of the rendered text
  std::chrono::milliseconds max_time{5'000};  // of the clock: a machine can be slow, but not for ever
  int max_recursion = 600;                    // nested evaluations: statements, expressions and macro calls together
};

// A value, everything it contains counted as often as it is contained: bytes, roughly. A list of lists of lists that
// share their elements is small in memory but not when printed or compared; this bounds the latter.
inline constexpr uint64_t kMaxValueWeight = uint64_t{32} << 20;
inline constexpr int kMaxValueDepth = 200;      // lists in lists in dicts ...
inline constexpr int kMaxNesting = 200;         // of statements, brackets and operators (a + b + c + ...) in the source
inline constexpr int64_t kMaxRange = 100'000;   // the length of a range(), as in jinja2's sandbox
inline constexpr size_t kMaxSource = 16 << 20;  // bytes of the template

}  // namespace ingot::jinja
