#include "model/open_model.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/packed_weights.h"
#include "formats/safetensors.h"
#include "model/config_read.h"
#include "model/dummy.h"
#include "model/families/family.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

ModelFiles open_gguf(const fs::path& path) {
  ModelFiles files;
  files.gguf = GgufFile::open(path);
  files.checkpoint = files.gguf;
  files.dir = path.parent_path();
  files.config = read_config(*files.gguf);
  if (files.config.name.empty()) files.config.name = path.stem().string();
  return files;
}

ModelFiles open_hugging_face(const fs::path& dir, int threads) {
  ModelFiles files;
  files.config = read_hf_config(dir);
  const std::shared_ptr<SafetensorsCheckpoint> stored = SafetensorsCheckpoint::open(dir);
  files.checkpoint = stored;
  if (files.config.packed.method != PackedFormat::Method::none)
    files.checkpoint = unpack_checkpoint(stored, files.config.packed, threads);
  if (const Family& family = family_of(files.config); family.adapt != nullptr)
    files.checkpoint = family.adapt(files.checkpoint, threads);
  files.dir = dir;
  files.config.weight_format = dominant_format(*files.checkpoint);
  return files;
}

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

ModelFiles open_folder(const fs::path& dir, int threads) {
  const std::vector<fs::path> gguf = files_ending(dir, ".gguf");
  const bool has_config = fs::exists(dir / "config.json");
  const bool has_safetensors =
      !files_ending(dir, ".safetensors").empty() || !files_ending(dir, ".safetensors.index.json").empty();
  // A folder made for vLLM has a config.json beside the .gguf that holds the weights.
  if (has_config && has_safetensors) return open_hugging_face(dir, threads);
  if (gguf.size() == 1) return open_gguf(gguf[0]);
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

ModelFiles open_dummy_model(const std::string& path, const std::string& dtype) {
  const fs::path dir(path);
  if (!fs::is_directory(dir) || !fs::exists(dir / "config.json"))
    throw_error(ErrorKind::bad_call, "{}: dummy weights need a folder with a config.json", path);
  ModelFiles files;
  files.config = read_hf_config(dir);
  files.dir = dir;
  std::string name = dtype;
  if (name.empty() || name == "auto") name = files.config.weight_format.empty() ? "bf16" : files.config.weight_format;
  const std::optional<DType> type = parse_dtype(name);
  if (!type) throw_error(ErrorKind::bad_call, "--dtype {}: is not a weight format; bf16, f16, q8_0 or q4_k, say", name);
  files.checkpoint = make_dummy_checkpoint(files.config, *type);
  files.config.weight_format = dominant_format(*files.checkpoint);
  return files;
}

ModelFiles open_model(const std::string& path, int threads) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw_error(ErrorKind::io, "{}: no such file or folder", path);
  try {
    if (status.type() == fs::file_type::directory) return open_folder(path, threads);
  } catch (const fs::filesystem_error& failure) {
    throw_error(ErrorKind::io, "{}: cannot be read: {}", path, failure.code().message());
  }
  const fs::path file(path);
  if (file.extension() == ".safetensors" || file.extension() == ".json")
    throw_error(ErrorKind::bad_call, "{}: give the model's folder instead of one of its files", path);
  return open_gguf(file);
}

}  // namespace ingot
