#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "hub/http_client.h"
#include "hub/model_name.h"
#include "hub/remote.h"
#include "hub/settings.h"

namespace ingot::hub {

// Brings one file to `blob`. The bytes are gathered in BLOB.incomplete, where an earlier attempt's are continued, and
// get their name only once their hash is right and they are on disk. `advance` hears of bytes gained (or lost, when an
// attempt starts over). The caller holds the file's lock.
void download_file(HttpClient& client, const HubSettings& settings, const ModelName& name, const std::string& commit,
                   const RemoteFile& file, const std::filesystem::path& blob,
                   const std::function<void(int64_t)>& advance, const Patience& patience);

// Bytes of the file that are on disk already, complete or not.
uint64_t bytes_present(const std::filesystem::path& blob, const RemoteFile& file);

}  // namespace ingot::hub
