#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace ingot {

#if defined(__linux__)
// Of the system: sleeps while `*word` is `old`, or wakes for no reason; wakes all who sleep on it.
void sleep_on(const uint32_t* word, uint32_t old);
void wake_all(const uint32_t* word);
#endif

// A number that threads sleep on until it changes. What std::atomic has for that yields several times before it sleeps
// (libstdc++), and beside other programs each yield is a time slice of theirs.
template <typename T>
class Awaited {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);

 public:
  T load() const { return value_.load(std::memory_order_acquire); }

  // Both wake those who sleep.
  void store(T value) {
    value_.store(value);
    wake();
  }
  void add(T more) {
    value_.fetch_add(more);
    wake();
  }

  // Returns once it is no longer `old`.
  void wait(T old) const {
#if defined(__linux__)
    ++sleepers_;  // before the number is looked at: whoever changes it after that sees that there is one
    while (value_.load() == old) sleep_on(low_word(), static_cast<uint32_t>(old));
    --sleepers_;
#else
    while (load() == old) value_.wait(old, std::memory_order_acquire);
#endif
  }

 private:
#if defined(__linux__)
  void wake() {
    if (sleepers_.load() > 0) wake_all(low_word());
  }
  // The system looks at 32 bits: those that change.
  const uint32_t* low_word() const {
    const bool is_second = sizeof(T) == 8 && std::endian::native == std::endian::big;
    return reinterpret_cast<const uint32_t*>(&value_) + (is_second ? 1 : 0);
  }
  mutable std::atomic<int32_t> sleepers_{0};
#else
  void wake() { value_.notify_all(); }
#endif
  std::atomic<T> value_{0};
};

}  // namespace ingot
