#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/model_name.h"
#include "hub/settings.h"

namespace ingot::hub {

struct PullEvents {
  // Called from one thread at a time.
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes
  std::function<void(const std::string& line)> note;            // one line for people
};

// Brings what an engine needs of a model into the cache, asking the hub what is current. What to open: the snapshot's
// folder, or the GGUF in it.
std::filesystem::path pull_model(const HubSettings& settings, const ModelName& name, const PullEvents& events);

// The model from the cache when it is there, without any network; else pull_model().
std::filesystem::path find_or_pull_model(const HubSettings& settings, const ModelName& name, const PullEvents& events);

}  // namespace ingot::hub
