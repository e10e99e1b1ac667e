#include "cli/hub_models.h"

#include <filesystem>

#include "cli/progress.h"

namespace ingot::cli {
namespace {

using Fetch = std::filesystem::path(const hub::HubSettings&, const hub::ModelName&, const hub::PullEvents&);

std::string fetch(const hub::ModelName& name, Fetch& how) {
  const hub::HubSettings settings = hub::HubSettings::from_environment();
  Progress progress("", Progress::Unit::bytes, true);
  hub::PullEvents events;
  events.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  events.note = [&](const std::string& line) { progress.note(line); };
  return how(settings, name, events).string();
}

}  // namespace

std::string pull_hub_model(const hub::ModelName& name, bool if_missing) {
  return fetch(name, if_missing ? hub::find_or_pull_model : hub::pull_model);
}

std::optional<std::string> find_hub_model(const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(text, ignored))) return std::nullopt;
  const auto name = hub::parse_model_name(text);
  if (!name) return std::nullopt;
  return fetch(*name, hub::find_or_pull_model);
}

}  // namespace ingot::cli
