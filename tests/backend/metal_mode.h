#pragma once

// The modes of the software Metal device; on a Mac there is only one mode, the real one.
#include <string>

#ifdef __APPLE__
namespace ingot::test {
inline void metal_in_fast_mode() {}
inline void metal_in_asked_mode() {}
inline void metal_in_strict_mode(unsigned = 0) {}
inline void metal_in_count_mode() {}
inline void metal_in_watched_mode(const std::string&) {}
inline void metal_with_fault(const std::string&, unsigned) {}
}  // namespace ingot::test
#else
#include <softmetal/softmetal.h>

#include <cstdlib>

namespace ingot::test {
inline void metal_in_mode(softmetal::Mode mode, unsigned seed) {
  softmetal::Options options = softmetal::options_from_environment();
  options.mode = mode;
  options.seed = seed;
  softmetal::set_options(options);
}
inline void metal_in_fast_mode() { metal_in_mode(softmetal::Mode::fast, 0); }
// Fast, unless SOFTMETAL_MODE and SOFTMETAL_SEED ask for checks: suites of numbers can be run either way.
inline void metal_in_asked_mode() {
  if (std::getenv("SOFTMETAL_MODE") == nullptr) metal_in_fast_mode();
}
inline void metal_in_strict_mode(unsigned seed = 0) { metal_in_mode(softmetal::Mode::strict, seed); }
inline void metal_in_count_mode() { metal_in_mode(softmetal::Mode::count, 0); }
// Strict, unless the environment asks otherwise, in an order of threads that follows from the name of the case and how
// often it was asked for: ascending, descending and shuffled ones all occur, always in the same places.
inline void metal_in_watched_mode(const std::string& name) {
  if (std::getenv("SOFTMETAL_MODE") != nullptr || std::getenv("SOFTMETAL_SEED") != nullptr) {
    softmetal::set_options(softmetal::options_from_environment());
    return;
  }
  static std::string last;
  static unsigned times = 0;
  times = name == last ? times + 1 : 0;
  last = name;
  unsigned hash = 0;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  metal_in_strict_mode((hash / 7 + times) % 4);
}
// Fast, and the n-th of these fails: dispatches of a kernel, or "copy".
inline void metal_with_fault(const std::string& what, unsigned n) {
  softmetal::Options options = softmetal::options_from_environment();
  options.mode = softmetal::Mode::fast;
  options.fault_kernel = what;
  options.fault_at = n;
  softmetal::set_options(options);
}
}  // namespace ingot::test
#endif
