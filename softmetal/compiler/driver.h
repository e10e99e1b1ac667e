// Runs clang for the front end, and remembers on disk what it made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/process.h"
#include "compiler/program.h"
#include "softmetal/softmetal.h"

namespace softmetal {

struct SourceOptions {
  std::vector<std::pair<std::string, std::string>> macros;
  std::vector<std::string> include_dirs;  // for files only: a library from source has no local #include
  std::string file_name = "library.metal";
  bool grids = false;       // for an NVIDIA GPU
  bool warpgroups = false;  // grids: of compute capability 9.0
  bool lint = false;        // as Apple's compiler would see it
};

class Driver {
 public:
  // Throws CompileError when there is no folder for what it makes. clang is looked for when it is needed.
  explicit Driver(const Options& options);

  // Metal source to a Program that is known to compile; the last few are remembered for all drivers of the process.
  // Throws CompileError with clang's messages.
  std::shared_ptr<const Program> compile(const std::string& source, const SourceOptions& options) const;
  // The same from preprocessed text, for a library file.
  std::shared_ptr<const Program> compile_preprocessed(const std::string& text) const;
  std::string preprocess(const std::string& source, const SourceOptions& options) const;

  // Address spaces, checked by parsing the source once more with real ones. Messages, none when it is clean.
  std::vector<std::string> lint(const std::string& source, const SourceOptions& options) const;

  // The shared object of one kernel: compiled, or found in the cache. `traced` loads and stores call the runtime;
  // `whole` matrices belong to lane 0.
  struct Flavor {
    bool traced = false;
    bool whole_matrices = false;
    bool lines = false;
  };
  std::string build(const Program& program, const KernelInfo& kernel, const std::vector<ConstantValue>& constants,
                    Flavor flavor) const;
  // The same code as a traced kernel's, with the lines that it came from: a third more to compile, and wanted only when
  // there is something to complain of. The kernel's own path where that cannot be had.
  std::string with_lines(const std::string& kernel) const;

  // One kernel for an NVIDIA GPU of compute capability `architecture` ("90a": 9.0, with what later
  // ones have not): PTX, or machine code where there is a
  // ptxas. Prebuilt, found in the cache, or compiled. What ptxas said of registers and spills is in `report`.
  struct Grid {
    std::string path;
    std::string report;
  };
  Grid build_grid(const Program& program, const KernelInfo& kernel, const std::vector<ConstantValue>& constants,
                  const std::string& architecture) const;

 private:
  const std::string& clang_identity() const;
  // Has clang look at all of it, once for each cache folder.
  void check(const Program& program) const;
  std::string find_prebuilt(const std::string& name) const;
  std::vector<std::string> flags(Flavor flavor) const;
  // Compiles `cpp`, in `folder`, to a shared object there; its path is folder/kernel.so.
  ProcessResult compile_object(const std::string& cpp, const std::vector<std::string>& options,
                               const std::string& folder) const;
  std::string precompiled_header(const std::vector<std::string>& flags) const;

  std::string clang_, cache_, shim_, ptxas_, prebuilt_;
  mutable std::string clang_identity_, ptxas_identity_;
  bool keep_sources_, lines_, prefill_;
};

}  // namespace softmetal
