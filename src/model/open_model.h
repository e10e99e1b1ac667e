#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/layout.h"

namespace ingot {

class GgufFile;

// A model's files, opened and understood, nothing loaded yet.
struct ModelFiles {
  std::shared_ptr<Checkpoint> checkpoint;
  std::shared_ptr<GgufFile> gguf;  // the same object for a GGUF model (its metadata has the tokenizer); null otherwise
  std::filesystem::path dir;       // where the model's other files lie
  ModelConfig config;

  NameStyle style() const { return gguf != nullptr ? NameStyle::gguf : NameStyle::hugging_face; }
};

// `path`: a .gguf file; a folder with config.json and safetensors weights; or a folder with exactly one .gguf model (a
// split set counts as one). Throws an error that says what was found instead. `threads`: for weights that are unpacked
// while they are loaded; 0: one a core.
ModelFiles open_model(const std::string& path, int threads = 0);
// A folder's config.json with made-up weights of `dtype` (auto: what the config says). Other files of the folder are
// not looked at.
ModelFiles open_dummy_model(const std::string& path, const std::string& dtype);

}  // namespace ingot
