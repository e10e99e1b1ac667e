#pragma once

#include <filesystem>

namespace ingot {

// The tokenizers of tests/fixtures, a folder each.
inline const std::filesystem::path kTokenizers = std::filesystem::path(INGOT_FIXTURES) / "tokenizers";

}  // namespace ingot
