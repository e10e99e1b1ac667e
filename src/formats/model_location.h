#pragma once

#include <filesystem>
#include <string>

namespace ingot {

// Where a model's files are.
struct ModelLocation {
  std::filesystem::path gguf;    // the file, or the first of a split one; empty: safetensors with their config.json
  std::filesystem::path folder;  // of the files
};

// Finds the weights of a model, given as a GGUF file or a folder. Throws Error that says what is missing, or which of
// several to name.
ModelLocation find_model(const std::string& path);

}  // namespace ingot
