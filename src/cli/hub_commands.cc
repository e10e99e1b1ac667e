#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/hub_models.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/memory.h"
#include "hub/cache.h"

namespace ingot::cli {
namespace {

hub::ModelName parse_or_throw(const std::string& text) {
  const auto name = hub::parse_model_name(text);
  if (!name)
    throw_error(ErrorKind::bad_call,
                "{}: is not a model's name; write OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME:Q4_K_M", text);
  return *name;
}

void list(bool json) {
  const hub::HubSettings settings = hub::HubSettings::from_environment();
  const std::vector<hub::Cache::Entry> entries = hub::Cache(settings.cache).list();
  const std::string standard = default_model(), standard_name = std::filesystem::path(standard).filename().string();
  std::error_code missing;
  const uint64_t standard_bytes = std::filesystem::file_size(standard, missing);
  if (json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    if (!missing)
      rows.push_back({{"name", standard_name},
                      {"default", true},
                      {"path", standard},
                      {"bytes", standard_bytes},
                      {"complete", true}});
    for (const hub::Cache::Entry& entry : entries)
      rows.push_back({{"name", entry.name},
                      {"commit", entry.commit},
                      {"revisions", entry.refs},
                      {"bytes", entry.bytes},
                      {"complete", entry.complete}});
    fmt::print("{}\n", rows.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  if (!missing) fmt::print("{:<56} {:>10}  without -m\n", standard_name, format_bytes(standard_bytes));
  if (entries.empty())
    fmt::print(stderr, "no models of the hub in {}; fetch one with `ingot pull OWNER/NAME`\n", settings.cache.string());
  for (const hub::Cache::Entry& entry : entries) {
    std::string revision = entry.commit.substr(0, 8);
    for (const std::string& ref : entry.refs) revision += " " + ref;
    fmt::print("{:<56} {:>10}  {:<16}{}\n", entry.name, format_bytes(entry.bytes), revision,
               entry.complete ? "" : " incomplete");
  }
}

void remove(const std::string& text) {
  const hub::Cache cache(hub::HubSettings::from_environment().cache);
  // Models from the hub's first years have no owner; `ingot list` shows them so.
  const bool ownerless = hub::is_safe_relative_path(text) && text.find_first_of("/@:") == std::string::npos &&
                         std::filesystem::is_directory(cache.repo(text));
  const hub::ModelName name = ownerless ? hub::ModelName{.repo = text} : parse_or_throw(text);
  const uint64_t bytes = cache.remove(name, text.find('@') != std::string::npos, [&] {
    fmt::print(stderr, "ingot: {}: another process is at it; waiting\n", name.repo);
  });
  fmt::print("{}: removed, {} freed\n", name.text(), format_bytes(bytes));
}

}  // namespace

void add_pull(Program& program) {
  auto model = std::make_shared<std::string>();
  Options command = program.add_command("pull", "fetch a model from the hub, or bring it up to date");
  command.option("NAME", *model, "OWNER/NAME, with @REVISION or :Q4_K_M behind it where needed").required();
  auto if_missing = std::make_shared<bool>(false);
  command.flag("--if-missing", *if_missing, "take it from the cache as it is where it is there: no network");
  command.callback([=] { fmt::print("{}\n", pull_hub_model(parse_or_throw(*model), *if_missing)); });
}

void add_list(Program& program) {
  auto json = std::make_shared<bool>(false);
  Options command =
      program.add_command("list", "the models that are here: the default one, and the Hugging Face cache");
  command.flag("--json", *json, "print a JSON list");
  command.callback([json] { list(*json); });
}

void add_rm(Program& program) {
  auto model = std::make_shared<std::string>();
  Options command = program.add_command("rm", "remove a model from the Hugging Face cache");
  command.option("NAME", *model, "as `ingot list` shows it; with @REVISION or :VARIANT only that").required();
  command.callback([model] { remove(*model); });
}

}  // namespace ingot::cli
