#pragma once

#include <string>
#include <vector>

#include "hub/model_name.h"

namespace ingot::hub {

// What of a repository an engine needs.
struct FileSelection {
  std::vector<std::string>
      files;         // in the order they are to appear: the weights last, the first part of a GGUF at the end
  std::string gguf;  // the file to open; empty: the folder is the model
};

// `files`: all paths of the repository. Throws an error that says what there is to choose from.
FileSelection select_files(const ModelName& name, const std::vector<std::string>& files);

// Names of the split set a GGUF belongs to, all parts in order; a file that is not split alone.
std::vector<std::string> split_parts(const std::string& gguf);

// What to write behind the colon for this GGUF: "Q4_K_M" where the name ends so, else the file's own name.
std::string variant_of(const std::string& gguf);

}  // namespace ingot::hub
