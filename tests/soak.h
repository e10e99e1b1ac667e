#pragma once

#include <cstdlib>
#include <string>
#include <vector>

// The suite runs each thing once, where it can go wrong; INGOT_SOAK=1 runs the same programs in full: every pairing,
// every seed, long loads.
namespace ingot::test {

inline bool soak() {
  static const bool on = [] {
    const char* value = std::getenv("INGOT_SOAK");
    return value != nullptr && *value != 0 && std::string(value) != "0";
  }();
  return on;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// With a sanitizer only `thin`: the numbers are the release suite's matter, and kernels take many times longer to
// compile.
template <typename T>
std::vector<T> unless_sanitized(std::vector<T> always, std::vector<T> thin) {
  return kSanitized && !soak() ? thin : always;
}

// `always`, and with INGOT_SOAK=1 `more` as well.
template <typename T>
std::vector<T> with_soak(std::vector<T> always, const std::vector<T>& more) {
  if (soak()) always.insert(always.end(), more.begin(), more.end());
  return always;
}

}  // namespace ingot::test
