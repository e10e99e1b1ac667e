#include "server/api_keys.h"

#include <openssl/crypto.h>

#include <fstream>

#include "core/error.h"
#include "server/ascii.h"

namespace ingot::server {
namespace {

Digest digest(std::string_view key) { return sha256({std::as_bytes(std::span(key))}); }

// A key must survive being a header value.
bool is_key(std::string_view key) { return !key.empty() && is_visible(key); }

bool is_at_or_below(std::string_view path, std::string_view root) {
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys, const std::string& file) {
  for (const std::string& key : keys) {
    if (!is_key(key))
      throw_error(ErrorKind::bad_call, "--api-key: a key must be visible ASCII characters without spaces");
    digests_.push_back(digest(key));
  }
  if (file.empty()) return;
  std::ifstream lines(file);
  if (!lines) throw_error(ErrorKind::io, "--api-key-file {}: cannot be read", file);
  const size_t before = digests_.size();
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string_view key = trim(line);
    if (key.empty() || key.front() == '#') continue;
    if (!is_key(key))
      throw_error(ErrorKind::bad_call, "--api-key-file {}:{}: a key must be visible ASCII characters without spaces",
                  file, number);
    digests_.push_back(digest(key));
  }
  // An empty file would quietly open the server to everybody.
  if (digests_.size() == before) throw_error(ErrorKind::bad_call, "--api-key-file {}: has no key in it", file);
}

std::optional<std::string> ApiKeys::holder(std::string_view authorization, std::string_view key) const {
  constexpr std::string_view kScheme = "bearer ";
  std::optional<std::string> found;
  if (ascii_lower(authorization.substr(0, kScheme.size())) == kScheme)
    found = holder_of(trim(authorization.substr(kScheme.size())));
  return found ? found : holder_of(key);
}

std::optional<std::string> ApiKeys::holder_of(std::string_view key) const {
  const Digest given = digest(key);
  size_t found = digests_.size();
  for (size_t i = 0; i < digests_.size(); ++i)
    if (CRYPTO_memcmp(digests_[i].data(), given.data(), given.size()) == 0) found = i;
  if (found == digests_.size()) return std::nullopt;
  return fmt::format("key {}", found);
}

bool needs_key_by_default(std::string_view path) {
  for (const std::string_view root : {"/v1", "/tokenize", "/detokenize", "/metrics", "/debug"})
    if (is_at_or_below(path, root)) return true;
  return false;
}

}  // namespace ingot::server
