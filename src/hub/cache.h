#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/model_name.h"

namespace ingot::hub {

// The folder all of Hugging Face's tools share:
//   models--OWNER--NAME/refs/REVISION        the commit a name stands for
//   models--OWNER--NAME/snapshots/COMMIT/... links to the files of that commit
//   models--OWNER--NAME/blobs/HASH           the bytes, by content; HASH.incomplete while they come in
//   .locks/models--OWNER--NAME/HASH.lock     held by whoever fetches that file
class Cache {
 public:
  explicit Cache(std::filesystem::path root);  // as in HubSettings: an empty one is an Error(bad_call)

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path repo(const std::string& name) const;  // of "OWNER/NAME"; old models have no owner
  std::filesystem::path snapshot(const std::string& name, const std::string& commit) const;
  std::filesystem::path blob(const std::string& name, const std::string& hash) const;
  std::filesystem::path lock(const std::string& name, const std::string& what) const;

  // The commit a revision stands for here, as far as is known without asking the hub.
  std::optional<std::string> commit_of(const ModelName& name) const;
  // What to open for this name when all of it is here: the snapshot's folder, or its GGUF.
  std::optional<std::filesystem::path> find(const ModelName& name) const;

  // Makes snapshots/COMMIT/FILE point to a blob that is complete; replaces what is there in one step.
  void link(const std::string& name, const std::string& commit, const std::string& file, const std::string& hash) const;
  // In one step, so that a reader sees the old commit or the new one.
  void write_ref(const ModelName& name, const std::string& commit) const;

  struct Entry {
    std::string name;               // OWNER/NAME, with :VARIANT for a GGUF
    std::string commit;             // empty: nothing is complete yet
    std::vector<std::string> refs;  // names for that commit
    uint64_t bytes = 0;
    bool complete = false;
  };
  // Everything there is, by name; a repository with several GGUF files has an entry for each.
  std::vector<Entry> list() const;

  // Removes a model and gives back the bytes freed. With a revision (`only_revision`) or a variant only that; bytes
  // that another snapshot needs stay. Throws Error(bad_call) when it is not here. `waiting` is called once when another
  // process is at it.
  uint64_t remove(const ModelName& name, bool only_revision, const std::function<void()>& waiting = {}) const;

 private:
  std::filesystem::path root_;
};

// Writes a small file under another name and renames it.
void write_file_atomically(const std::filesystem::path& path, const std::string& text);
// A folder and those above it; an Error(io) that says what to do where that fails.
void make_folder(const std::filesystem::path& path);

}  // namespace ingot::hub
