// The software device's .metallib: preprocessed source behind a line that names the format.
#pragma once

#include <string>

namespace softmetal {

// Throw CompileError.
std::string read_library_file(const std::string& path);
void write_library_file(const std::string& path, const std::string& preprocessed);

}  // namespace softmetal
