#include "hub/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/json.h"
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
  std::ifstream file(folder / index, std::ios::binary);
  nlohmann::json root;
  try {
    root = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), index);
  } catch (const JsonError&) {
    return false;
  }
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) return false;
  std::error_code ignored;
  for (const auto& shard : root["weight_map"])
    if (!shard.is_string() || !is_safe_relative_path(shard.get_ref<const std::string&>()) ||
        !fs::is_regular_file(folder / shard.get<std::string>(), ignored))
      return false;
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

// Names of the blobs that the links under a folder lead to.
std::set<std::string> blobs_linked_from(const fs::path& folder) {
  std::set<std::string> blobs;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->is_symlink()) blobs.insert(fs::read_symlink(at->path()).filename().string());
  return blobs;
}

// What removing a blob gives back: nothing where it is itself a link, into the store that repositories share.
uint64_t freed_by(const fs::path& blob) {
  std::error_code ignored;
  if (fs::is_symlink(blob, ignored)) return 0;
  const uintmax_t size = fs::file_size(blob, ignored);
  return ignored ? 0 : size;
}

// Removes those of the blobs that no snapshot links to any more. Others stay: they may be new, and their links to come.
uint64_t remove_unlinked(const fs::path& repo, const std::set<std::string>& blobs) {
  const std::set<std::string> used = blobs_linked_from(repo / "snapshots");
  uint64_t freed = 0;
  for (const std::string& blob : blobs) {
    if (used.contains(blob)) continue;
    freed += freed_by(repo / "blobs" / blob);
    fs::remove(repo / "blobs" / blob);
  }
  return freed;
}

void remove_snapshot(const fs::path& repo, const std::string& commit) {
  for (const std::string& ref : files_under(repo / "refs"))
    if (read_first_line(repo / "refs" / ref) == commit) fs::remove(repo / "refs" / ref);
  fs::remove_all(repo / "snapshots" / commit);
}

// Names first, bytes last: an interrupted removal leaves nothing that looks like a model.
uint64_t remove_repo(const fs::path& repo) {
  uint64_t freed = 0;
  for (const std::string& blob : files_under(repo / "blobs")) freed += freed_by(repo / "blobs" / blob);
  fs::remove_all(repo / "refs");
  fs::remove_all(repo / "snapshots");
  fs::remove_all(repo);
  return freed;
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
      if (files_under(snapshot).empty()) remove_snapshot(repo, commit);
    } catch (const Error& error) {
      last = error;
    }
  }
  if (!removed && last) throw Error(*last);
}

// What a snapshot has to offer: an entry for each GGUF, and one for a model of safetensors.
void list_snapshot(const fs::path& snapshot, const Cache::Entry& common, std::vector<Cache::Entry>& entries) {
  std::vector<std::string> rest;
  bool gguf = false;
  for (const std::string& file : files_under(snapshot)) {
    if (!file.ends_with(".gguf")) {
      rest.push_back(file);
      continue;
    }
    gguf = true;
    const std::vector<std::string> parts = split_parts(file);
    if (file != parts.front()) continue;
    Cache::Entry entry = common;
    entry.name += ":" + variant_of(file);
    entry.bytes = bytes_of(snapshot, parts);
    entry.complete = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
      std::error_code ignored;
      return fs::is_regular_file(snapshot / part, ignored);
    });
    entries.push_back(entry);
  }
  const bool weights =
      std::any_of(rest.begin(), rest.end(), [](const std::string& file) { return file.ends_with(".safetensors"); });
  if (rest.empty() || (gguf && !weights)) return;  // a GGUF's own configuration or page is no model beside it
  Cache::Entry entry = common;
  entry.bytes = bytes_of(snapshot, rest);
  entry.complete = is_complete(snapshot, rest);
  entries.push_back(entry);
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

Cache::Cache(fs::path root) : root_(std::move(root)) {
  if (root_.empty())
    throw_error(ErrorKind::bad_call,
                "no folder for models: neither HF_HUB_CACHE, HF_HOME nor HOME is set; set HF_HOME to one");
}

fs::path Cache::repo(const std::string& name) const {
  std::string folder(kPrefix);
  folder += name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  return root_ / folder;
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
    const size_t before = entries.size();
    auto refs = refs_by_commit(root_ / folder);
    for (const std::string& commit : folders_in(root_ / folder / "snapshots"))
      list_snapshot(root_ / folder / "snapshots" / commit, {.name = name, .commit = commit, .refs = refs[commit]},
                    entries);
    const fs::path blobs = root_ / folder / "blobs";
    if (entries.size() == before) entries.push_back({.name = name, .bytes = bytes_of(blobs, files_under(blobs))});
  }
  return entries;
}

uint64_t Cache::remove(const ModelName& name, bool only_revision, const std::function<void()>& waiting) const {
  const fs::path folder = repo(name.repo);
  if (!fs::is_directory(folder))
    throw_error(ErrorKind::bad_call, "{}: is not in {}; `ingot list` shows what is", name.text(), root_.string());
  try {
    const FileLock lock(this->lock(name.repo, "ingot"), waiting);
    std::vector<std::string> commits = folders_in(folder / "snapshots");
    if (only_revision) {
      const auto commit = commit_of(name);
      if (!commit || std::find(commits.begin(), commits.end(), *commit) == commits.end())
        throw_error(ErrorKind::bad_call, "{}: that revision is not in {}; `ingot list` shows what is", name.text(),
                    root_.string());
      commits = {*commit};
    }
    if (!only_revision && name.variant.empty()) return remove_repo(folder);
    std::set<std::string> blobs;
    for (const std::string& commit : commits) blobs.merge(blobs_linked_from(folder / "snapshots" / commit));
    if (name.variant.empty())
      remove_snapshot(folder, commits[0]);
    else
      remove_variant(name, folder, commits);
    if (folders_in(folder / "snapshots").empty()) return remove_repo(folder);
    return remove_unlinked(folder, blobs);
  } catch (const fs::filesystem_error& error) {
    fail(error.path1(), "removed", error.code());
  }
}

}  // namespace ingot::hub
