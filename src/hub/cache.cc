#include "hub/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "hub/file_lock.h"
#include "hub/select_files.h"

namespace ingot::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

// A name nobody else uses, beside `path`.
fs::path temporary_beside(const fs::path& path) {
  return path.parent_path() / fmt::format(".{}.{}.tmp", path.filename().string(), getpid());
}

[[noreturn]] void fail(const fs::path& path, const char* what, const std::error_code& error) {
  throw_error(ErrorKind::io, "{}: cannot be {}: {}; may this user write there, and is there room?", path.string(), what,
              error.message());
}

std::string read_first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

// All files under a folder whose content is there (a link to a missing blob is not), as paths relative to it.
std::vector<std::string> files_under(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (fs::is_regular_file(at->path(), ignored)) files.push_back(at->path().lexically_relative(folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (fs::is_directory(at->path(), ignored)) names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether every shard the index names is here.
bool has_all_shards(const fs::path& folder, const std::string& index) {
  std::ifstream file(folder / index);
  const nlohmann::json root = nlohmann::json::parse(file, nullptr, false);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) return false;
  std::error_code ignored;
  for (const auto& shard : root["weight_map"])
    if (!shard.is_string() || !fs::is_regular_file(folder / shard.get<std::string>(), ignored)) return false;
  return true;
}

// A folder that can be opened as a model: others may have fetched only its configuration, or be at it right now.
bool is_complete(const fs::path& folder, const std::vector<std::string>& files) {
  const auto has = [&](std::string_view file) { return std::find(files.begin(), files.end(), file) != files.end(); };
  if (!has("config.json") || (!has("tokenizer.json") && !has("tekken.json"))) return false;
  bool weights = false;
  for (const std::string& file : files) {
    if (file.ends_with(".safetensors.index.json") && !has("model.safetensors") && !has_all_shards(folder, file))
      return false;
    weights = weights || file.ends_with(".safetensors");
  }
  return weights && (has("model.safetensors") || has("model.safetensors.index.json") ||
                     std::none_of(files.begin(), files.end(), [](const std::string& file) {
                       return file.starts_with("model-") && file.ends_with(".safetensors");
                     }));
}

std::optional<fs::path> find_in_snapshot(const ModelName& name, const fs::path& folder) {
  const std::vector<std::string> files = files_under(folder);
  try {
    const FileSelection selection = select_files(name, files);
    if (!selection.gguf.empty()) return folder / selection.gguf;
    if (is_complete(folder, files)) return folder;
  } catch (const Error&) {  // not all of it is here
  }
  return std::nullopt;
}

uint64_t bytes_of(const fs::path& folder, const std::vector<std::string>& files) {
  uint64_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code ignored;
    const uintmax_t size = fs::file_size(folder / file, ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

std::map<std::string, std::vector<std::string>> refs_by_commit(const fs::path& repo) {
  std::map<std::string, std::vector<std::string>> refs;
  for (const std::string& ref : files_under(repo / "refs")) refs[read_first_line(repo / "refs" / ref)].push_back(ref);
  return refs;
}

// Removes the blobs no snapshot links to.
uint64_t collect_blobs(const fs::path& repo) {
  std::set<std::string> used;
  std::error_code error;
  for (fs::recursive_directory_iterator at(repo / "snapshots", error), end; !error && at != end; at.increment(error))
    if (at->is_symlink()) used.insert(fs::read_symlink(at->path()).filename().string());
  uint64_t freed = 0;
  for (const std::string& blob : files_under(repo / "blobs")) {
    if (used.contains(blob) || blob.ends_with(".incomplete")) continue;  // that one may be in the making
    freed += bytes_of(repo / "blobs", {blob});
    fs::remove(repo / "blobs" / blob);
  }
  return freed;
}

void remove_snapshot(const fs::path& repo, const std::string& commit) {
  for (const std::string& ref : files_under(repo / "refs"))
    if (read_first_line(repo / "refs" / ref) == commit) fs::remove(repo / "refs" / ref);
  fs::remove_all(repo / "snapshots" / commit);
}

// Removes one GGUF, all its parts, from the snapshots that have it.
void remove_variant(const ModelName& name, const fs::path& repo, const std::vector<std::string>& commits) {
  bool removed = false;
  std::optional<Error> last;
  for (const std::string& commit : commits) {
    const fs::path snapshot = repo / "snapshots" / commit;
    try {
      for (const std::string& file : select_files(name, files_under(snapshot)).files) fs::remove(snapshot / file);
      removed = true;
    } catch (const Error& error) {
      last = error;
    }
  }
  if (!removed && last) throw Error(*last);
}

}  // namespace

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(path, "made", error);
}

void write_file_atomically(const fs::path& path, const std::string& text) {
  make_folder(path.parent_path());
  const fs::path temporary = temporary_beside(path);
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (!file) error = std::error_code(errno, std::generic_category());
  if (!error) fs::rename(temporary, path, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  fail(path, "written", error);
}

fs::path Cache::repo(const std::string& name) const {
  const size_t slash = name.find('/');
  return root_ / fmt::format("{}{}--{}", kPrefix, name.substr(0, slash), name.substr(slash + 1));
}

fs::path Cache::snapshot(const std::string& name, const std::string& commit) const {
  return repo(name) / "snapshots" / commit;
}

fs::path Cache::blob(const std::string& name, const std::string& hash) const { return repo(name) / "blobs" / hash; }

fs::path Cache::lock(const std::string& name, const std::string& what) const {
  return root_ / ".locks" / repo(name).filename() / (what + ".lock");
}

std::optional<std::string> Cache::commit_of(const ModelName& name) const {
  const std::string commit = read_first_line(repo(name.repo) / "refs" / name.revision);
  if (is_commit(commit)) return commit;
  if (!is_commit(name.revision)) return std::nullopt;
  return name.revision;
}

std::optional<fs::path> Cache::find(const ModelName& name) const {
  const auto commit = commit_of(name);
  if (!commit) return std::nullopt;
  return find_in_snapshot(name, snapshot(name.repo, *commit));
}

void Cache::link(const std::string& name, const std::string& commit, const std::string& file,
                 const std::string& hash) const {
  const fs::path path = snapshot(name, commit) / file;
  const fs::path target = blob(name, hash).lexically_relative(path.parent_path());
  std::error_code error;
  if (fs::read_symlink(path, error) == target && !error) return;
  make_folder(path.parent_path());
  const fs::path temporary = temporary_beside(path);
  error.clear();
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, path, error);
  if (error) fail(path, "made", error);
}

void Cache::write_ref(const ModelName& name, const std::string& commit) const {
  if (name.revision == commit) return;
  write_file_atomically(repo(name.repo) / "refs" / name.revision, commit);
}

std::vector<Cache::Entry> Cache::list() const {
  std::vector<Entry> entries;
  for (const std::string& folder : folders_in(root_)) {
    if (!folder.starts_with(kPrefix)) continue;
    std::string name = folder.substr(kPrefix.size());
    if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
    auto refs = refs_by_commit(root_ / folder);
    for (const std::string& commit : folders_in(root_ / folder / "snapshots")) {
      const fs::path snapshot = root_ / folder / "snapshots" / commit;
      std::vector<std::string> rest;
      for (const std::string& file : files_under(snapshot)) {
        if (!file.ends_with(".gguf")) {
          rest.push_back(file);
          continue;
        }
        const std::vector<std::string> parts = split_parts(file);
        if (file != parts.front()) continue;
        Entry entry{.name = name + ":" + variant_of(file), .commit = commit, .refs = refs[commit]};
        entry.bytes = bytes_of(snapshot, parts);
        entry.complete = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
          std::error_code ignored;
          return fs::is_regular_file(snapshot / part, ignored);
        });
        entries.push_back(entry);
      }
      if (rest.empty()) continue;
      entries.push_back({.name = name,
                         .commit = commit,
                         .refs = refs[commit],
                         .bytes = bytes_of(snapshot, rest),
                         .complete = is_complete(snapshot, rest)});
    }
  }
  return entries;
}

uint64_t Cache::remove(const ModelName& name, bool only_revision) const {
  const fs::path folder = repo(name.repo);
  if (!fs::is_directory(folder))
    throw_error(ErrorKind::bad_call, "{}: is not in {}; `ingot list` shows what is", name.text(), root_.string());
  try {
    const FileLock lock(this->lock(name.repo, "ingot"));
    std::vector<std::string> commits = folders_in(folder / "snapshots");
    if (only_revision) {
      const auto commit = commit_of(name);
      if (!commit || std::find(commits.begin(), commits.end(), *commit) == commits.end())
        throw_error(ErrorKind::bad_call, "{}: that revision is not in {}; `ingot list` shows what is", name.text(),
                    root_.string());
      commits = {*commit};
    }
    if (!name.variant.empty()) {
      remove_variant(name, folder, commits);
      return collect_blobs(folder);
    }
    if (only_revision && folders_in(folder / "snapshots").size() > 1) {
      remove_snapshot(folder, commits[0]);
      return collect_blobs(folder);
    }
    // Names first, bytes last: an interrupted removal leaves nothing that looks like a model.
    const uint64_t bytes = bytes_of(folder / "blobs", files_under(folder / "blobs"));
    fs::remove_all(folder / "refs");
    fs::remove_all(folder / "snapshots");
    fs::remove_all(folder);
    return bytes;
  } catch (const fs::filesystem_error& error) {
    fail(error.path1(), "removed", error.code());
  }
}

}  // namespace ingot::hub
