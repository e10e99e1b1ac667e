#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/digest.h"

namespace ingot::server {

// The keys that open the API. Only their SHA-256 digests are kept.
class ApiKeys {
 public:
  // Keys given one by one, and those in `file` (one a line, `#` begins a comment, empty: no file). Throws Error.
  ApiKeys(const std::vector<std::string>& keys, const std::string& file);

  // No keys: everything is open.
  bool empty() const { return digests_.empty(); }
  // The holder of the key in an Authorization header (`Bearer KEY`) or, where that has none, in x-api-key, by a name
  // that tells nothing of the key; nothing: neither is one of the keys. Takes the same time whichever key it is, and
  // however much of one is right.
  std::optional<std::string> holder(std::string_view authorization, std::string_view key = {}) const;

 private:
  std::optional<std::string> holder_of(std::string_view key) const;

  std::vector<Digest> digests_;
};

// The paths that need a key unless the API says otherwise: /v1, /tokenize, /detokenize, /metrics and what lies below.
bool needs_key_by_default(std::string_view path);

}  // namespace ingot::server
