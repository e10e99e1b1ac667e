#include "hub/file_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "core/error.h"

namespace ingot::hub {

struct FileHash::Context {
  EVP_MD_CTX* digest = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(digest); }
};

bool is_content_hash(std::string_view text) {
  return (text.size() == 64 || text.size() == 40) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

FileHash::FileHash(std::string_view expected, uint64_t size)
    : context_(std::make_unique<Context>()), git_(expected.size() == 40), size_(size) {
  restart();
}

FileHash::~FileHash() = default;

void FileHash::restart() {
  if (context_->digest == nullptr ||
      EVP_DigestInit_ex(context_->digest, git_ ? EVP_sha1() : EVP_sha256(), nullptr) != 1)
    throw_error(ErrorKind::internal, "OpenSSL cannot compute {}", git_ ? "SHA-1" : "SHA-256");
  if (!git_) return;
  const std::string head = fmt::format("blob {}", size_);
  update(head.c_str(), head.size() + 1);  // git's header ends with the zero byte
}

void FileHash::update(const void* data, size_t bytes) {
  if (EVP_DigestUpdate(context_->digest, data, bytes) != 1)
    throw_error(ErrorKind::internal, "OpenSSL cannot compute a hash");
}

std::string FileHash::finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (EVP_DigestFinal_ex(context_->digest, digest, &bytes) != 1)
    throw_error(ErrorKind::internal, "OpenSSL cannot compute a hash");
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace ingot::hub
