#include "cli/completion.h"

#include <algorithm>
#include <filesystem>

#include "core/settings.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

// `names` that begin with what was typed: the part they share, and a space behind the only one.
Completion among(std::string_view typed, const std::vector<std::string>& names) {
  Completion found;
  for (const std::string& name : names)
    if (name.starts_with(typed)) found.choices.push_back(name);
  if (found.choices.empty()) return found;
  std::ranges::sort(found.choices);
  std::string_view shared = found.choices.front();
  for (const std::string& name : found.choices)
    shared = shared.substr(0, static_cast<size_t>(std::ranges::mismatch(shared, name).in1 - shared.begin()));
  found.insert = shared.substr(typed.size());
  if (found.choices.size() == 1 && !found.choices[0].ends_with('/')) found.insert += ' ';
  return found;
}

std::vector<std::string> files_in(std::string folder, bool hidden) {
  folder = expand_home(folder);
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with('.') && !hidden) continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) name += '/';
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::string expand_home(const std::string& path) {
  if (path.starts_with("~/"))
    if (const auto home = environment("HOME")) return *home + path.substr(1);
  return path;
}

Completion complete_line(std::string_view before_cursor, const std::vector<std::string>& commands,
                         const std::vector<std::string>& settings) {
  if (!before_cursor.starts_with('/')) return {};
  const size_t space = before_cursor.find(' ');
  if (space == std::string_view::npos) return among(before_cursor, commands);
  const std::string_view command = before_cursor.substr(0, space), argument = before_cursor.substr(space + 1);
  if (command == "/set" && argument.find_first_of(" =") == std::string_view::npos) return among(argument, settings);
  if (command != "/save" && command != "/load") return {};
  const size_t slash = argument.rfind('/');
  const size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::string_view typed = argument.substr(begin);
  return among(typed, files_in(std::string(argument.substr(0, begin)), typed.starts_with('.')));
}

}  // namespace ingot::cli
