#pragma once

#include <optional>
#include <string>

#include "hub/model_name.h"
#include "hub/pull.h"

namespace ingot::cli {

class Program;

void add_pull(Program& program);
void add_list(Program& program);
void add_rm(Program& program);

// With a progress bar and notes on stderr: the path to open. `if_missing`: what is in the cache is taken as it is.
std::string pull_hub_model(const hub::ModelName& name, bool if_missing);

// The path of a model that is given by its name on the hub, fetched where it is not in the cache. Nothing when the text
// is no such name, or when something of that name is on disk: a path always wins.
std::optional<std::string> find_hub_model(const std::string& text);

}  // namespace ingot::cli
