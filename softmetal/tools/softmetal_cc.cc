// Checks .metal files as far as that goes without Apple's compiler, and makes libraries for the software device.
//   softmetal_cc [-I dir] [-D name=value] file.metal...              compiles every kernel
//   softmetal_cc --lint ...                                          ... and checks address spaces
//   softmetal_cc --agx folder file.metal                             leaves them there for softmetal/agx/, as the
//   device does with SOFTMETAL_AGX softmetal_cc ... file.metal -o file.metallib                     ... and writes a
//   library that newLibrary(path) reads
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "compiler/driver.h"
#include "compiler/process.h"
#include "runtime/library_file.h"

int main(int argc, char** argv) try {
  bool lint = false;
  std::string out, agx;
  std::vector<std::string> files;
  softmetal::SourceOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    auto value = [&]() -> std::string {
      if (a.size() > 2) return a.substr(2);
      if (i + 1 == argc) throw std::invalid_argument(a + " needs a value");
      return argv[++i];
    };
    if (a == "--lint") {
      lint = true;
    } else if (a.compare(0, 2, "-I") == 0) {
      options.include_dirs.push_back(value());
    } else if (a.compare(0, 2, "-D") == 0) {
      const std::string d = value();
      const size_t equals = d.find('=');
      options.macros.emplace_back(d.substr(0, equals), equals == std::string::npos ? "1" : d.substr(equals + 1));
    } else if (a == "-o" || a == "--agx") {
      if (i + 1 == argc) throw std::invalid_argument(a + " needs a value");
      (a == "-o" ? out : agx) = argv[++i];
    } else if (a[0] == '-') {
      throw std::invalid_argument("unknown option " + a);
    } else {
      files.push_back(a);
    }
  }
  if (files.empty() || (!out.empty() && files.size() != 1)) {
    throw std::invalid_argument(
        "usage: softmetal_cc [--lint] [--agx folder] [-I dir] [-D name=value] file.metal... [-o file.metallib]");
  }
  const softmetal::Driver driver(softmetal::options_from_environment());
  int failures = 0;
  for (const std::string& file : files) {
    try {
      softmetal::SourceOptions o = options;
      o.file_name = std::filesystem::path(file).filename().string();
      o.include_dirs.push_back(
          std::filesystem::path(file).parent_path().empty() ? "." : std::filesystem::path(file).parent_path().string());
      const std::string source = softmetal::read_file(file);
      const std::string preprocessed = driver.preprocess(source, o);
      const std::shared_ptr<const softmetal::Program> program = driver.compile_preprocessed(preprocessed);
      std::vector<std::string> messages;
      if (lint) messages = driver.lint(source, o);
      for (const std::string& m : messages) std::fprintf(stderr, "%s\n", m.c_str());
      failures += !messages.empty();
      if (messages.empty()) std::printf("%s: %zu kernels\n", file.c_str(), program->kernels.size());
      for (const softmetal::KernelInfo& kernel : program->kernels)
        if (!agx.empty())
          softmetal::write_file(agx + "/" + kernel.name + ".cc",
                                "// " + kernel.name + "\n" + softmetal::specialize_agx(*program, kernel, {}));
      if (!out.empty() && messages.empty()) softmetal::write_library_file(out, preprocessed);
    } catch (const softmetal::CompileError& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ++failures;
    }
  }
  return failures ? 1 : 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 2;
}
