#include "formats/model_location.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// The files of a folder that end so, sorted; of a split set only the first counts.
std::vector<fs::path> files_ending(const fs::path& dir, std::string_view ending) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(ending)) continue;
    const size_t of = name.rfind("-of-");
    if (ending == ".gguf" && of != std::string::npos && of >= 6 && name.size() == of + 14 &&
        name.compare(of - 6, 6, "-00001") != 0)
      continue;
    found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

ModelLocation locate_in_folder(const fs::path& dir) {
  const std::vector<fs::path> gguf = files_ending(dir, ".gguf");
  const bool has_config = fs::exists(dir / "config.json");
  const bool has_safetensors =
      !files_ending(dir, ".safetensors").empty() || !files_ending(dir, ".safetensors.index.json").empty();
  // A folder made for vLLM has a config.json beside the .gguf that holds the weights.
  if (has_config && has_safetensors) return {.gguf = {}, .folder = dir};
  if (gguf.size() == 1) return {.gguf = gguf[0], .folder = dir};
  if (gguf.size() > 1)
    throw_error(ErrorKind::bad_call, "{}: has {} .gguf models ({}, {}, ...); name one of them", dir.string(),
                gguf.size(), gguf[0].filename().string(), gguf[1].filename().string());
  if (has_safetensors)
    throw_error(ErrorKind::io, "{}: has safetensors weights but no config.json; download the whole model",
                dir.string());
  const bool has_pickle = !files_ending(dir, ".bin").empty() || !files_ending(dir, ".pth").empty();
  if (has_pickle)
    throw_error(ErrorKind::declined,
                "{}: has only PyTorch pickle weights, which are not read; convert them to safetensors", dir.string());
  if (has_config)
    throw_error(ErrorKind::io, "{}: has a config.json but no weights (.safetensors or .gguf)", dir.string());
  throw_error(ErrorKind::io, "{}: is not a model folder: it has no config.json and no .gguf file", dir.string());
}

}  // namespace

ModelLocation find_model(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw_error(ErrorKind::io, "{}: no such file or folder", path);
  try {
    if (status.type() == fs::file_type::directory) return locate_in_folder(path);
  } catch (const fs::filesystem_error& failure) {
    throw_error(ErrorKind::io, "{}: cannot be read: {}", path, failure.code().message());
  }
  const fs::path file(path);
  if (file.extension() == ".safetensors" || file.extension() == ".json")
    throw_error(ErrorKind::bad_call, "{}: give the model's folder instead of one of its files", path);
  return {.gguf = file, .folder = file.parent_path()};
}

}  // namespace ingot
