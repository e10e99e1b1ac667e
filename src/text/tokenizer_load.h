#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ingot/tokenizer.h"

namespace ingot {

class GgufFile;

// open_tokenizer(), for each kind of model.
std::shared_ptr<const Tokenizer> load_tokenizer(const GgufFile& file);
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// That of a model loaded in this format (EngineOptions::load_format: "dummy" is a folder without weights); null: it has
// none.
std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& model, const std::string& load_format);

}  // namespace ingot
