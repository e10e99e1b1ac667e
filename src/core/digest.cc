#include "core/digest.h"

#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "core/error.h"

namespace ingot {
namespace {

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using MdContext = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;
using Mac = std::unique_ptr<EVP_MAC, Free<EVP_MAC_free>>;
using MacContext = std::unique_ptr<EVP_MAC_CTX, Free<EVP_MAC_CTX_free>>;

[[noreturn]] void fail_digest() { throw_error(ErrorKind::internal, "OpenSSL cannot compute a hash"); }

const unsigned char* bytes_of(std::span<const std::byte> span) {
  return reinterpret_cast<const unsigned char*>(span.data());
}

// Made once a thread: looking an algorithm up takes longer than a short hash.
EVP_MAC_CTX* hmac_context() {
  thread_local const MacContext context = [] {
    const Mac mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
    MacContext made(mac ? EVP_MAC_CTX_new(mac.get()) : nullptr);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
    if (!made || EVP_MAC_CTX_set_params(made.get(), params) != 1) fail_digest();
    return made;
  }();
  return context.get();
}

}  // namespace

Digest sha256(Pieces pieces, const Rest& rest) {
  thread_local const MdContext context(EVP_MD_CTX_new());
  Digest digest;
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (std::span<const std::byte> left : pieces)
    while (good && !left.empty()) {
      const auto part = left.first(rest ? std::min(left.size(), kRestBytes) : left.size());
      good = EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
      left = left.subspan(part.size());
      if (rest) rest();
    }
  good = good && EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1;
  if (!good) fail_digest();
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, Pieces pieces) {
  EVP_MAC_CTX* context = hmac_context();
  Digest digest;
  bool good = EVP_MAC_init(context, bytes_of(key), key.size(), nullptr) == 1;
  for (const auto piece : pieces) good = good && EVP_MAC_update(context, bytes_of(piece), piece.size()) == 1;
  size_t size = 0;
  good = good && EVP_MAC_final(context, reinterpret_cast<unsigned char*>(digest.data()), &size, digest.size()) == 1 &&
         size == digest.size();
  if (!good) fail_digest();
  return digest;
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte b : digest) fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned>(b));
  return text;
}

Digest random_secret() {
  Digest secret;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(secret.size())) != 1)
    throw_error(ErrorKind::internal, "OpenSSL has no random numbers");
  return secret;
}

}  // namespace ingot
