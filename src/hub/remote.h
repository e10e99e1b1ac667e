#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/http_client.h"
#include "hub/model_name.h"
#include "hub/settings.h"

namespace ingot::hub {

// What the hub says about one revision of a repository.
struct Listing {
  std::string commit;
  std::vector<std::string> files;  // safe relative paths
};

struct RemoteFile {
  std::string path;
  std::string hash;  // content hash (file_hash.h)
  uint64_t size = 0;
};

Listing list_remote(HttpClient& client, const HubSettings& settings, const ModelName& name);
// The file's hash and size, without its bytes.
RemoteFile stat_remote(HttpClient& client, const HubSettings& settings, const ModelName& name,
                       const std::string& commit, const std::string& path);
std::string file_url(const HubSettings& settings, const ModelName& name, const std::string& commit,
                     const std::string& path);

// Sends until there is an answer worth having: what passes by itself (no connection, 408, 429, 5xx) is tried again
// after a while, the one that Retry-After names where it does.
HttpAnswer send_patiently(HttpClient& client, const HttpRequest& request);
bool is_passing(const HttpAnswer& answer);
// `attempt` counts from 0.
void wait_before_retry(const HttpAnswer& answer, int attempt);
constexpr int kAttempts = 6;

// Throws the Error for an answer that is no success: what it means here, and what to do. `what`: the model or a file.
[[noreturn]] void throw_for(const HttpAnswer& answer, const HubSettings& settings, const ModelName& name,
                            const std::string& what);

}  // namespace ingot::hub
