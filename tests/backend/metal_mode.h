#pragma once

// The modes of the software Metal device; on a Mac there is only one mode, the real one.
#ifdef __APPLE__
namespace ingot::test {
inline void metal_in_fast_mode() {}
inline void metal_in_asked_mode() {}
inline void metal_in_strict_mode(unsigned = 0) {}
inline void metal_in_count_mode() {}
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
}  // namespace ingot::test
#endif
