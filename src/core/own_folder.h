#pragma once

#include <cstdint>
#include <filesystem>

namespace ingot {

// What everybody else on the machine may do with a folder.
enum class Others : uint8_t { nothing, look };

// Makes a folder of this user's alone where there is none. Throws Error (io) where that cannot be, or where there is
// something else, somebody else's, or one that lets others do more.
void own_folder(const std::filesystem::path& path, Others others);

}  // namespace ingot
