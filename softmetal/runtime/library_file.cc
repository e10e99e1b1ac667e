#include "runtime/library_file.h"

#include "compiler/process.h"
#include "compiler/program.h"

namespace softmetal {
namespace {
const std::string kMagic = "softmetal library 1\n";
}

std::string read_library_file(const std::string& path) {
  if (!file_exists(path)) throw CompileError("no library at " + path);
  const std::string text = read_file(path);
  if (text.compare(0, kMagic.size(), kMagic) != 0) {
    throw CompileError(
        path + " is not a library of the software Metal device (a .metallib from Apple's compiler cannot run here)");
  }
  return text.substr(kMagic.size());
}

void write_library_file(const std::string& path, const std::string& preprocessed) {
  write_file(path, kMagic + preprocessed);
}

}  // namespace softmetal
