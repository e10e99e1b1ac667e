#include "compiler/driver.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "compiler/process.h"
#include "compiler/remembered.h"
#include "compiler/shim_files.h"

namespace softmetal {
namespace {

// The same rule as in the rest of the project: INGOT_CACHE, else XDG_CACHE_HOME/ingot, else ~/.cache/ingot.
std::string default_cache() {
  auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string s = variable("INGOT_CACHE"); !s.empty()) return s + "/softmetal";
  if (std::string s = variable("XDG_CACHE_HOME"); !s.empty()) return s + "/ingot/softmetal";
  if (std::string s = variable("HOME"); !s.empty()) return s + "/.cache/ingot/softmetal";
  throw CompileError("no folder for compiled kernels: set SOFTMETAL_CACHE");
}

// Tells one compiler from another without running it.
std::string identity(const std::string& program) {
  namespace fs = std::filesystem;
  std::vector<std::string> places;
  if (program.find('/') != std::string::npos) {
    places.push_back(program);
  } else {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) places.push_back(folder + "/" + program);
  }
  for (const std::string& place : places) {
    std::error_code error;
    const fs::path real = fs::canonical(place, error);
    if (error || access(real.c_str(), X_OK) != 0) continue;
    return real.string() + " " + std::to_string(fs::file_size(real)) + " " +
           std::to_string(fs::last_write_time(real).time_since_epoch().count());
  }
  throw CompileError("cannot run " + program +
                     ", which compiles Metal kernels here; install clang-19 or set SOFTMETAL_CLANG");
}

// Fixed levels rather than the machine's own, so that results do not change from one machine to the next.
std::string march() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    return "x86-64-v3";
  return "x86-64-v2";
#else
  return "armv8.2-a+fp16";
#endif
}

// The library's headers are part of the binary; clang wants them as files.
std::string unpack_shim(const std::string& cache) {
  std::vector<std::string> parts;
  for (const ShimFile* f = kShimFiles; f->path; ++f) parts.insert(parts.end(), {f->path, f->text});
  const std::string folder = cache + "/shim-" + hash_text(parts).substr(0, 16);
  if (file_exists(folder + "/complete")) return folder;
  for (const ShimFile* f = kShimFiles; f->path; ++f) {
    const std::string path = folder + "/" + f->path;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, f->text);
  }
  write_file(folder + "/complete", "");
  return folder;
}

// clang's messages without the lines that only decorate them.
std::string first_lines(const std::string& output) {
  std::string kept;
  int lines = 0;
  for (size_t at = 0; at < output.size() && lines < 40;) {
    const size_t end = std::min(output.find('\n', at), output.size());
    kept += output.substr(at, end - at) + "\n";
    ++lines;
    at = end + 1;
  }
  while (!kept.empty() && kept.back() == '\n') kept.pop_back();
  return kept.empty() ? "the compiler failed without a message" : kept;
}

// What the lint's language refuses and Metal does not: a struct copied out of constant memory, which clang's generic
// address space leaves out; and arms of ?: that are vectors, classes here, and differ in address space alone.
bool is_false_alarm(const std::string& block) {
  if (block.find("no matching constructor for initialization") != std::string::npos) {
    return block.find(
               "(the implicit copy constructor) not viable: cannot bind reference in address space '__constant'") !=
           std::string::npos;
  }
  const size_t types = block.find("incompatible operand types");
  return types != std::string::npos && block.find("vec<", types) != block.rfind("vec<");
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::mutex pch_mutex;

// A process has the library of an engine in one or two flavours; each holds some ten megabytes.
RememberedPrograms remembered(4);

}  // namespace

Driver::Driver(const Options& options)
    : clang_(options.clang.empty() ? "clang++-19" : options.clang),
      ptxas_(options.ptxas),
      prebuilt_(options.prebuilt),
      keep_sources_(options.keep_sources),
      lines_(options.lines),
      prefill_(options.compile_only) {
  cache_ = options.cache.empty() ? default_cache() : options.cache;
  std::error_code error;
  std::filesystem::create_directories(cache_, error);
  if (error) throw CompileError("cannot create " + cache_ + "; choose another folder with SOFTMETAL_CACHE");
  cache_ = std::filesystem::absolute(cache_).string();
  shim_ = unpack_shim(cache_);
}

const std::string& Driver::clang_identity() const {
  if (clang_identity_.empty()) clang_identity_ = identity(clang_);
  return clang_identity_;
}

std::string Driver::preprocess(const std::string& source, const SourceOptions& options) const {
  std::vector<std::string> argv = {clang_,
                                   "-E",
                                   "-x",
                                   "c++",
                                   "-std=c++17",
                                   "-undef",
                                   "-nostdinc",
                                   "-isystem",
                                   shim_ + "/pp",
                                   "-D__METAL__=1",
                                   "-D__METAL_MACOS__=1",
                                   "-D__METAL_VERSION__=310",
                                   "-D__HAVE_BFLOAT__=1",
                                   "-fno-color-diagnostics"};
  if (!options.lint) argv.push_back("-DSOFTMETAL_MATRIX_ADD=1");
  if (options.grids) {
    for (const char* macro : {"SOFTMETAL_WIDE_MATRICES", "SOFTMETAL_EARLY_START", "SOFTMETAL_COPIES"})
      argv.push_back(std::string("-D") + macro + "=1");
    if (options.warpgroups) argv.push_back("-DSOFTMETAL_WARPGROUPS=1");
  }
  for (const auto& [name, value] : options.macros) argv.push_back("-D" + name + "=" + value);
  for (const std::string& dir : options.include_dirs) argv.push_back("-I" + std::filesystem::absolute(dir).string());
  argv.push_back(options.file_name);
  // Files that are included may change without notice.
  const bool cached = options.include_dirs.empty();
  std::string prebuilt;
  if (options.grids) {
    std::vector<std::string> key(argv.begin() + 1, argv.end());
    // The folder of the shim differs from machine to machine, its name does not.
    for (std::string& part : key)
      part = part == shim_ + "/pp" ? std::filesystem::path(shim_).filename().string() : part;
    key.push_back(source);
    prebuilt = hash_text(key) + ".metal";
    if (const std::string found = find_prebuilt(prebuilt); !found.empty()) return read_file(found);
  }
  std::vector<std::string> key = argv;
  key.insert(key.end(), {source, clang_identity()});
  const std::string known = cache_ + "/" + hash_text(key) + ".metal";
  if (cached && file_exists(known)) {
    if (prefill_ && !prebuilt.empty() && !prebuilt_.empty()) write_file(prebuilt_ + "/" + prebuilt, read_file(known));
    return read_file(known);
  }
  TemporaryFolder folder(cache_);
  write_file(folder.path() + "/" + options.file_name, source);
  const std::string out = folder.path() + "/out.i";
  const ProcessResult result = run_process(argv, folder.path(), out);
  if (result.status != 0) throw CompileError(first_lines(result.output));
  std::string text = read_file(out);
  if (cached) write_file(known, text);
  if (prefill_ && !prebuilt.empty() && !prebuilt_.empty()) write_file(prebuilt_ + "/" + prebuilt, text);
  return text;
}

std::shared_ptr<const Program> Driver::compile(const std::string& source, const SourceOptions& options) const {
  return compile_preprocessed(preprocess(source, options));
}

std::shared_ptr<const Program> Driver::compile_preprocessed(const std::string& text) const {
  // What was checked for one cache folder was not for another; the shim's folder names it.
  const std::string compiler = shim_ + " " + clang_identity();
  if (auto known = remembered.find(compiler, text)) return known;
  Program program = translate(text);
  check(program);
  return remembered.add(compiler, text, std::move(program));
}

void Driver::check(const Program& program) const {
  const std::string cpp = unspecialized(program);
  const std::vector<std::string> options = flags({});
  std::vector<std::string> key = options;
  key.insert(key.end(), {cpp, clang_identity()});
  const std::string stamp = cache_ + "/checked-" + hash_text(key);
  if (file_exists(stamp)) return;
  TemporaryFolder folder(cache_);
  write_file(folder.path() + "/library.cc", cpp);
  const ProcessResult result =
      run_process(std::vector<std::string>{clang_, "-fsyntax-only"} + options +
                      std::vector<std::string>{"-include-pch", precompiled_header(options), "library.cc"},
                  folder.path());
  if (result.status != 0) throw CompileError(first_lines(result.output));
  write_file(stamp, "");
}

std::vector<std::string> Driver::lint(const std::string& source, const SourceOptions& options) const {
  SourceOptions apple = options;
  apple.lint = true;
  const std::string preprocessed = preprocess(source, apple);
  std::vector<std::string> messages = missing_address_spaces(preprocessed);
  TemporaryFolder folder(cache_);
  write_file(folder.path() + "/lint.cl", lint_source(translate(preprocessed, true)));
  const ProcessResult result =
      run_process({clang_, "-x", "clcpp", "-cl-std=clc++2021", "-target", "x86_64-linux-gnu", "-march=x86-64-v3",
                   "-cl-no-stdinc", "-fdeclspec", "-fsyntax-only", "-w", "-fno-color-diagnostics",
                   "-fno-caret-diagnostics", "-ferror-limit=0", "-I" + shim_, "lint.cl"},
                  folder.path());
  if (result.status == 0) return messages;
  // An error and the notes behind it, one block.
  std::vector<std::string> blocks;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" generated.") != std::string::npos) continue;
    if (line.find(" note: ") != std::string::npos && !blocks.empty()) {
      blocks.back() += "\n" + line;
    } else {
      blocks.push_back(line);
    }
  }
  for (const std::string& block : blocks) {
    if (!is_false_alarm(block)) messages.push_back(block);
  }
  return messages;
}

std::vector<std::string> Driver::flags(Flavor flavor) const {
  std::vector<std::string> f = {"-std=c++20",
                                "-fdeclspec",
                                "-fPIC",
                                "-Wno-everything",
                                "-Werror=vla",
                                "-fno-color-diagnostics",
                                "-march=" + march(),
                                "-ffp-contract=off",
                                "-Xclang",
                                "-ffloat16-excess-precision=none",
                                "-fno-math-errno",
                                "-fno-strict-aliasing",
                                "-fno-exceptions",
                                "-fno-rtti",
                                "-fno-stack-protector",
                                "-fvisibility=hidden",
                                "-fvisibility-inlines-hidden",
                                "-I" + shim_};
  if (flavor.whole_matrices) f.push_back("-DSM_MATRIX_WHOLE");
  if (flavor.lines || lines_) f.push_back("-g1");
  // Takes half of the time to compile watched kernels, whose time is not spent on the addresses it improves.
  const std::vector<std::string> no_strength_reduction = {"-mllvm", "-disable-lsr"};
#if defined(SOFTMETAL_ASAN)
  f = f +
      std::vector<std::string>{"-O1", "-DSM_SANITIZED", "-fsanitize=address,undefined",
                               // Of all pointers, before they are used: two thirds of the compile time, and what
                               // is used wrongly AddressSanitizer sees.
                               "-fno-sanitize=null,object-size,pointer-overflow,vptr,function",
                               "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"} +
      no_strength_reduction;
#elif defined(SOFTMETAL_TSAN)
  f = f + std::vector<std::string>{"-O1", "-DSM_SANITIZED", "-fsanitize=thread", "-fno-omit-frame-pointer"} +
      no_strength_reduction;
#else
  if (flavor.traced) {
    f = f +
        std::vector<std::string>{"-O1", "-fno-vectorize", "-fno-slp-vectorize", "-DSM_TRACE",
                                 "-fsanitize=kernel-address"} +
        no_strength_reduction;
    for (const char* option :
         {"-asan-instrumentation-with-call-threshold=0", "-asan-globals=0", "-asan-stack=0",
          "-asan-initialization-order=0", "-asan-opt=0", "-asan-kernel-mem-intrinsic-prefix=1",
          // Better code is not worth its tenth of the compile time either: most of it runs once.
          "-disable-machine-licm", "-disable-machine-cse", "-disable-machine-sink", "-disable-peephole",
          "-enable-misched=false", "-disable-post-ra", "-experimental-debug-variable-locations=false"}) {
      f = f + std::vector<std::string>{"-mllvm", option};
    }
  } else {
    // More of either doubles the time to compile products, and lets them run by a tenth faster.
    f = f + std::vector<std::string>{"-O2", "-fno-slp-vectorize", "-mllvm", "-unroll-threshold=80"};
  }
#endif
  return f;
}

std::string Driver::precompiled_header(const std::vector<std::string>& options) const {
  std::vector<std::string> key = options;
  key.push_back(clang_identity());
  const std::string path = shim_ + "/" + hash_text(key).substr(0, 16) + ".pch";
  std::lock_guard lock(pch_mutex);
  if (file_exists(path)) return path;
  TemporaryFolder folder(cache_);
  const std::string temporary = folder.path() + "/shim.pch";
  const ProcessResult result = run_process(std::vector<std::string>{clang_, "-x", "c++-header"} + options +
                                               std::vector<std::string>{shim_ + "/softmetal_kernel.h", "-o", temporary},
                                           folder.path());
  if (result.status != 0) throw CompileError(first_lines(result.output));
  std::filesystem::rename(temporary, path);
  return path;
}

std::string Driver::build(const Program& program, const KernelInfo& kernel, const std::vector<ConstantValue>& constants,
                          Flavor flavor) const {
  const std::string cpp = specialize(program, kernel, constants);
  const std::vector<std::string> options = flags(flavor);
  std::vector<std::string> key = options;
  key.insert(key.end(), {cpp, clang_identity()});
  const std::string stem = cache_ + "/" + hash_text(key);
  if (keep_sources_) write_file(stem + ".cc", cpp);
  if (file_exists(stem + ".so")) return stem + ".so";
  TemporaryFolder folder(cache_);
  ProcessResult result = compile_object(cpp, options, folder.path());
  if (result.status != 0)  // with all of the program, should something be missing of it
    result = compile_object(specialize(program, kernel, constants, true), options, folder.path());
  if (result.status != 0) throw CompileError("kernel " + kernel.name + ": " + first_lines(result.output));
  // For with_lines(), which may be asked for by another process.
  if (flavor.traced) std::filesystem::rename(folder.path() + "/kernel.cc", stem + ".cc");
  std::filesystem::rename(folder.path() + "/kernel.so", stem + ".so");
  return stem + ".so";
}

std::string Driver::with_lines(const std::string& kernel) const {
  const std::string stem = kernel.substr(0, kernel.rfind('.')), lines = stem + ".lines.so";
  if (lines_ || !file_exists(stem + ".cc")) return kernel;
  if (file_exists(lines)) return lines;
  TemporaryFolder folder(cache_);
  const ProcessResult result =
      compile_object(read_file(stem + ".cc"), flags({.traced = true, .lines = true}), folder.path());
  if (result.status != 0) return kernel;
  std::filesystem::rename(folder.path() + "/kernel.so", lines);
  return lines;
}

// Not by one call: clang would start itself once more for the first half and look for libraries in the second.
ProcessResult Driver::compile_object(const std::string& cpp, const std::vector<std::string>& options,
                                     const std::string& folder) const {
  write_file(folder + "/kernel.cc", cpp);
  ProcessResult result = run_process(
      std::vector<std::string>{clang_, "-c"} + options +
          std::vector<std::string>{"-include-pch", precompiled_header(options), "kernel.cc", "-o", "kernel.o"},
      folder);
  if (result.status != 0) return result;
  result = run_process({"ld", "-shared", "kernel.o", "-o", "kernel.so", "-lm"}, folder);
  if (result.status == 0) return result;
  return run_process({clang_, "-shared", "kernel.o", "-o", "kernel.so", "-lm"}, folder);
}

std::string Driver::find_prebuilt(const std::string& name) const {
  if (prebuilt_.empty()) return "";
  const std::string path = prebuilt_ + "/" + name;
  return file_exists(path) ? path : "";
}

Driver::Grid Driver::build_grid(const Program& program, const KernelInfo& kernel,
                                const std::vector<ConstantValue>& constants, const std::string& architecture) const {
  const std::string cuda = specialize_grid(program, kernel, constants);
  const std::string arch = "sm_" + architecture;
  const std::vector<std::string> options = {"-x",
                                            "cuda",
                                            "--cuda-device-only",
                                            "-nocudainc",
                                            "-nocudalib",
                                            "--cuda-gpu-arch=" + arch,
                                            "-Xclang",
                                            "-target-feature",
                                            "-Xclang",
                                            "+ptx80",
                                            "-std=c++20",
                                            "-O3",
                                            "-g1",
                                            "-fdeclspec",
                                            "-ffp-contract=off",
                                            "-fno-strict-aliasing",
                                            "-Wno-everything",
                                            "-Werror=vla",
                                            "-fno-color-diagnostics",
                                            "-DSM_CUDA",
                                            "-mllvm",
                                            "-unroll-threshold=2000"};
  // What is prebuilt says nothing of the compiler: the machine it is used on need not have one.
  std::vector<std::string> key = options;
  key.insert(key.end(), {cuda, std::filesystem::path(shim_).filename().string()});
  const std::string name = hash_text(key);
  if (!prefill_) {
    for (const char* type : {".cubin", ".ptx"}) {
      if (std::string found = find_prebuilt(name + type); !found.empty()) return {found, ""};
    }
  }
  key.push_back(clang_identity());
  const std::string stem = cache_ + "/" + hash_text(key);
  if (keep_sources_) write_file(stem + ".cu", cuda);
  TemporaryFolder folder(cache_);
  if (!file_exists(stem + ".ptx")) {
    write_file(folder.path() + "/kernel.cu", cuda);
    const ProcessResult result =
        run_process(std::vector<std::string>{clang_} + options +
                        std::vector<std::string>{"-I" + shim_, "-S", "kernel.cu", "-o", "kernel.ptx"},
                    folder.path());
    if (result.status != 0) throw CompileError("kernel " + kernel.name + ": " + first_lines(result.output));
    std::filesystem::rename(folder.path() + "/kernel.ptx", stem + ".ptx");
  }
  Grid grid{stem + ".ptx", ""};
  if (!ptxas_.empty()) {
    if (ptxas_identity_.empty()) ptxas_identity_ = identity(ptxas_);
    const std::string made = stem + "-" + hash_text({ptxas_identity_}).substr(0, 8);
    if (!file_exists(made + ".cubin")) {
      const ProcessResult result = run_process(
          {ptxas_, "-arch=" + arch, "-v", "--generate-line-info", grid.path, "-o", "kernel.cubin"}, folder.path());
      if (result.status != 0) throw CompileError("kernel " + kernel.name + ": " + first_lines(result.output));
      write_file(made + ".txt", result.output);
      std::filesystem::rename(folder.path() + "/kernel.cubin", made + ".cubin");
    }
    grid = {made + ".cubin", read_file(made + ".txt")};
  }
  if (prefill_ && !prebuilt_.empty()) {
    const std::string type = std::filesystem::path(grid.path).extension().string();
    write_file(prebuilt_ + "/" + name + type, read_file(grid.path));
  }
  return grid;
}

}  // namespace softmetal
