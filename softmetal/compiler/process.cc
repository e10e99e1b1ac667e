#include "compiler/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/program.h"

extern char** environ;

namespace softmetal {

ProcessResult run_process(const std::vector<std::string>& argv, const std::string& directory,
                          const std::string& output_file) {
  ProcessResult result;
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (output_file.empty()) {
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  }
  posix_spawn_file_actions_adddup2(&actions, out[1], 2);
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  if (failed == 0) {
    char buffer[4096];
    for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR);) {
      if (n > 0) result.output.append(buffer, static_cast<size_t>(n));
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  }
  close(out[0]);
  return result;
}

std::string hash_text(const std::vector<std::string>& parts) {
  // FNV-1a twice, from different starts; lengths keep the parts apart.
  uint64_t a = 0xcbf29ce484222325ull, b = 0x9ae16a3b2f90404full;
  auto mix = [&](unsigned char c) {
    a = (a ^ c) * 0x100000001b3ull;
    b = ((b ^ c) * 0x9e3779b97f4a7c15ull) ^ (b >> 29);
  };
  for (const std::string& part : parts) {
    for (size_t n = part.size(), i = 0; i < 8; ++i) mix(static_cast<unsigned char>(n >> (8 * i)));
    for (char c : part) mix(static_cast<unsigned char>(c));
  }
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return text;
}

bool file_exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CompileError("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + "." + std::to_string(getpid()) + "." + hash_text({text}).substr(0, 8);
  {
    std::ofstream out(temporary, std::ios::binary);
    out << text;
    if (!out) throw CompileError("cannot write " + temporary);
  }
  std::filesystem::rename(temporary, path);
}

TemporaryFolder::TemporaryFolder(const std::string& parent) : path_(parent + "/tmp.XXXXXX") {
  if (!mkdtemp(path_.data()))
    throw CompileError("cannot write to " + parent + "; choose another folder with SOFTMETAL_CACHE");
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace softmetal
