#include "model/open_model.h"

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/model_location.h"
#include "formats/packed_weights.h"
#include "formats/safetensors.h"
#include "model/config_read.h"
#include "model/dummy.h"
#include "model/families/family.h"
#include "model/head_files.h"
#include "model/pooling.h"

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
  if (files.config.head) {
    if (files.config.packed.method != PackedFormat::Method::none)
      throw_error(ErrorKind::declined,
                  "{}: a head that guesses tokens is read from plain weights, not from packed ones", dir.string());
    files.checkpoint = adapt_head(stored, files.config);
    files.dir = dir;
    files.config.weight_format = dominant_format(*files.checkpoint);
    return files;
  }
  if (files.config.packed.method != PackedFormat::Method::none)
    files.checkpoint = unpack_checkpoint(stored, files.config.packed, threads);
  files.checkpoint = with_wrapper_names(files.checkpoint, files.config);
  if (const Family& family = family_of(files.config); family.adapt != nullptr)
    files.checkpoint = family.adapt(files.checkpoint, threads);
  files.dir = dir;
  files.config.weight_format = dominant_format(*files.checkpoint);
  return files;
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
  const ModelLocation found = find_model(path);
  return found.gguf.empty() ? open_hugging_face(found.folder, threads) : open_gguf(found.gguf);
}

}  // namespace ingot
