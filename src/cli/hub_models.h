#pragma once

#include <optional>
#include <string>

#include "hub/model_name.h"
#include "hub/pull.h"

namespace CLI {
class App;
}

namespace ingot::cli {

void add_pull(CLI::App& app);
void add_list(CLI::App& app);
void add_rm(CLI::App& app);

// With a progress bar and notes on stderr: the path to open. `if_missing`: what is in the cache is taken as it is.
std::string pull_hub_model(const hub::ModelName& name, bool if_missing);

// The path of a model that is given by its name on the hub, fetched where it is not in the cache. Nothing when the text
// is no such name, or when something of that name is on disk: a path always wins.
std::optional<std::string> find_hub_model(const std::string& text);

}  // namespace ingot::cli
