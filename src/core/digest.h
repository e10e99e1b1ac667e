#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "core/spare_time.h"

namespace ingot {

using Digest = std::array<std::byte, 32>;
using Pieces = std::initializer_list<std::span<const std::byte>>;

// SHA-256 of the pieces one after the other.
Digest sha256(Pieces pieces, const Rest& rest = {});
std::string hex(const Digest& digest);  // in lower-case digits
// HMAC-SHA256 of the same.
Digest hmac_sha256(std::span<const std::byte> key, Pieces pieces);
// Bytes that nobody can guess, for keys.
Digest random_secret();

}  // namespace ingot
