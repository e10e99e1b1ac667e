#include "core/awaited.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace ingot {

void sleep_on(const uint32_t* word, uint32_t old) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}

void wake_all(const uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace ingot
#endif
