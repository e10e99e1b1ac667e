#include "prefix/block_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

namespace ingot {
namespace {

static_assert(std::endian::native == std::endian::little, "block files are written as they lie in memory");

constexpr std::string_view kMagic = "ingotkv1";

}  // namespace

std::vector<std::byte> block_file_head(const BlockContent& content, size_t payload_bytes) {
  const std::array<uint64_t, 2> counts = {payload_bytes, content.tokens.size()};
  const Pieces pieces = {std::as_bytes(std::span(kMagic)), std::as_bytes(std::span(counts)), content.hash.bytes,
                         std::as_bytes(content.tokens)};
  size_t size = 0;
  for (const auto piece : pieces) size += piece.size();
  std::vector<std::byte> head(size);
  auto end = head.begin();
  for (const auto piece : pieces) end = std::ranges::copy(piece, end).out;
  return head;
}

Digest block_file_check(std::span<const std::byte> head, std::span<const std::byte> payload, const Rest& rest) {
  return sha256({head, payload}, rest);
}

bool read_block_file(const ReadBytes& read, const BlockContent& content, std::span<std::byte> payload,
                     const Rest& rest) {
  const std::vector<std::byte> expected = block_file_head(content, payload.size());
  std::vector<std::byte> head(expected.size());
  Digest check;
  if (!read(head) || head != expected || !read(payload) || !read(check)) return false;
  std::byte more;
  return check == block_file_check(head, payload, rest) && !read({&more, 1});
}

}  // namespace ingot
