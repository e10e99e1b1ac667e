#pragma once

#include <cstdint>

namespace ingot {

// 64 bits nobody can guess in advance: for seeds and names, not for secrets. Every thread has its own generator.
uint64_t random_word();

}  // namespace ingot
