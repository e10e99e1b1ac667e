#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/digest.h"
#include "prefix/block_hash.h"

// A block as a file: a head, the bytes of the block, the SHA-256 of both. The head has nothing that a reader does not
// know beforehand, so it is compared, not parsed:
//
//   "ingotkv1", u64 bytes of the block, u64 tokens, hash [32], tokens i32 [tokens]        all little-endian
namespace ingot {

std::vector<std::byte> block_file_head(const BlockContent& content, size_t payload_bytes);
Digest block_file_check(std::span<const std::byte> head, std::span<const std::byte> payload, const Rest& rest = {});

// Fills the span; false: there are fewer bytes.
using ReadBytes = std::function<bool(std::span<std::byte>)>;

// Reads what was written of this content into `payload`; false: it is something else, or damaged, and `payload` is
// anything.
bool read_block_file(const ReadBytes& read, const BlockContent& content, std::span<std::byte> payload,
                     const Rest& rest = {});

}  // namespace ingot
