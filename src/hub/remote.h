#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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

// What goes on while a request is repeated.
struct Patience {
  const std::atomic<bool>* stop = nullptr;            // set: give up, another file has failed
  std::function<void(const std::string& line)> note;  // hears of long waits; any thread calls it
};

Listing list_remote(HttpClient& client, const HubSettings& settings, const ModelName& name, const Patience& patience);
// The file's hash and size, without its bytes.
RemoteFile stat_remote(HttpClient& client, const HubSettings& settings, const ModelName& name,
                       const std::string& commit, const std::string& path, const Patience& patience);
std::string file_url(const HubSettings& settings, const ModelName& name, const std::string& commit,
                     const std::string& path);

// What passes by itself (no connection, 408, 429, 5xx) is tried again after a while, the one that Retry-After names
// where it does, but a minute at most.
bool is_passing(const FetchReply& answer);
// `attempt` counts from 0. `what`: the model or the file, for the note.
void wait_before_retry(const FetchReply& answer, int attempt, const std::string& what, const Patience& patience);
constexpr int kAttempts = 6;
// Before anything has come: a name that is not resolved, or a closed port, rarely gets better.
constexpr int kFirstContactAttempts = 3;

// Throws the Error for an answer that is no success: what it means here, and what to do. `what`: the model or a file.
[[noreturn]] void throw_for(const FetchReply& answer, const HubSettings& settings, const ModelName& name,
                            const std::string& what);

}  // namespace ingot::hub
