#pragma once

#include <filesystem>

#include "core/digest.h"

namespace ingot {

// Writes a file for its owner only, whole or not at all: into `beside`, which is then renamed. Throws Error (io).
void write_whole(const std::filesystem::path& path, const std::filesystem::path& beside, Pieces pieces,
                 const Rest& rest = {});

}  // namespace ingot
