#pragma once

#include <filesystem>
#include <memory>

#include "ingot/tokenizer.h"

namespace ingot {

class GgufFile;

// open_tokenizer(), for each kind of model.
std::shared_ptr<const Tokenizer> load_tokenizer(const GgufFile& file);
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder);

}  // namespace ingot
