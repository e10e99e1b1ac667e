// What the front end knows of a Metal library: its source as C++ that any executor can finish, and its kernels.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace softmetal {

// The source was refused: one line per message, each with file and line where there is one.
class CompileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct KernelParameter {
  std::string kind;  // an enumerator of abi::ArgumentKind: kBuffer, kThreadPositionInGrid, ...
  unsigned index = 0;
  std::string name;
  std::string enabled_by;  // a function constant; empty: always there
};

struct KernelInfo {
  std::string name;        // what the host asks for
  std::string expression;  // the C++ function: "norm" or "norm<half, 4>"
  unsigned max_threads = 1024;
  // [[softmetal_together(n)]]: a multiprocessor has so many threadgroups of it at a time; 0: as many as there is room
  // for
  unsigned together = 0;
  bool starts_early = false;  // [[softmetal_early]]: says itself where it needs the dispatches before it
  std::string file;
  int line = 0;
  std::vector<KernelParameter> parameters;
};

struct FunctionConstant {
  std::string name;
  std::string type;
  unsigned index = 0;
};

// A declaration at the top level of a source.
struct SourcePiece {
  std::string text;
  std::string blank;               // as many lines, nothing in them
  std::vector<std::string> names;  // that it declares; none: it is always needed
  std::vector<std::string> words;  // all that it mentions
};

struct Program {
  std::string source;               // C++ after the standard library; line markers name the .metal files
  std::vector<SourcePiece> pieces;  // the source, cut
  std::vector<KernelInfo> kernels;
  std::vector<FunctionConstant> constants;
  bool uses_thread_elements = false;

  const KernelInfo* find(const std::string& name) const;
};

// A value the host gave a function constant, as C++: "64u", "true", "metal::float2(1.0f, 2.0f)".
struct ConstantValue {
  std::string name;
  std::string value;
};

// Preprocessed Metal source to a Program. With `lint`, threadgroup variables and function constants keep the shape that
// the address-space lint reads. Throws CompileError.
Program translate(const std::string& preprocessed, bool lint = false);

std::vector<SourcePiece> cut_source(const std::string& source);
// [pieces] whether a name in `roots` leads there.
std::vector<bool> reachable(const std::vector<SourcePiece>& pieces, const std::string& roots);

// The whole C++ file for one kernel: definitions of the constants, what it needs of the program, and its description.
// `whole`: all of the program.
std::string specialize(const Program& program, const KernelInfo& kernel, const std::vector<ConstantValue>& constants,
                       bool whole = false);

// The same as a grid of an NVIDIA GPU: CUDA in the compiler's terms, `softmetal_grid` with `softmetal_arguments` beside
// it.
std::string specialize_grid(const Program& program, const KernelInfo& kernel,
                            const std::vector<ConstantValue>& constants);

// The same for Mesa's compiler for Apple GPUs: HIP in clang's terms, `softmetal_grid` with as many bytes of threadgroup
// memory for its arguments as SM_THREADGROUP_BYTES says, in threadgroups of SM_THREADS_X, _Y and _Z threads.
std::string specialize_agx(const Program& program, const KernelInfo& kernel,
                           const std::vector<ConstantValue>& constants);

// The same for a check of all kernels at once, no constant set: what needs a value at compile time does not get one, as
// with Apple's compiler.
std::string unspecialized(const Program& program);

// For the address-space lint: all kernels of a Program that was translated for it.
std::string lint_source(const Program& program);
// Pointers and references that name no address space, one message each. Clang's generic address space would let them
// pass.
std::vector<std::string> missing_address_spaces(const std::string& preprocessed);

}  // namespace softmetal
