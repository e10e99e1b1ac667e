#include "prefix/block_hash.h"

namespace ingot {
namespace {

// What a hash is of, so that one kind is never taken for another.
constexpr std::byte kIdentity{'i'}, kTokens{'t'}, kSalt{'s'}, kSalted{'w'};

std::span<const std::byte> one(const std::byte& tag) { return {&tag, 1}; }
std::span<const std::byte> bytes_of_text(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

BlockHasher::BlockHasher(const Digest& secret, std::string_view identity)
    : key_(hmac_sha256(secret, {one(kIdentity), bytes_of_text(identity)})) {}

BlockHash BlockHasher::chain(const BlockHash& parent, std::span<const int32_t> tokens) const {
  return {hmac_sha256(key_, {one(kTokens), parent.bytes, std::as_bytes(tokens)})};
}

BlockHash BlockHasher::salt(std::string_view text) const {
  if (text.empty()) return {};
  return {hmac_sha256(key_, {one(kSalt), bytes_of_text(text)})};
}

BlockHash BlockHasher::salted(const BlockHash& parent, const BlockHash& salt) const {
  if (salt == BlockHash{}) return parent;
  return {hmac_sha256(key_, {one(kSalted), parent.bytes, salt.bytes})};
}

}  // namespace ingot
