#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "formats/checkpoint.h"
#include "formats/gguf.h"

namespace ingot {

// Writes the tensors of `checkpoint` (made ones included) to a GGUF file with the metadata of `metadata`, all of it but
// what describes the old file: general.file_type becomes `file_type` (llama.cpp's number of a mix of formats), and a
// split set becomes one file. The file appears under its name only when it is complete; on failure nothing stays
// behind. `progress` is called with the bytes of tensors written; it may be empty.
void write_gguf(const std::filesystem::path& path, const GgufFile& metadata, const Checkpoint& checkpoint,
                uint32_t file_type, const std::function<void(size_t done, size_t total)>& progress);

}  // namespace ingot
