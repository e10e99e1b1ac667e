// The model that is used when none is named.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "cli/common.h"
#include "core/error.h"
#include "core/settings.h"

extern char** environ;

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

// By the Python package whose command this is; what that says goes to stderr.
void fetch_with(std::string python) {
  std::string flag = "-c", program = "from ingot.default_model import main; main()";
  char* arguments[] = {python.data(), flag.data(), program.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, python.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 1;
  if (failed != 0 || waitpid(child, &status, 0) != child || status != 0)
    throw_error(ErrorKind::io, "the default model could not be fetched: give one with -m");
}

}  // namespace

std::string default_model() {
  if (const auto path = environment("INGOT_DEFAULT_MODEL")) return *path;
  return (fs::path(cache_folder()) / "models" / kDefaultModelFile).string();
}

std::string fetched_default_model() {
  const std::string path = default_model();
  if (fs::exists(path)) return path;
  const auto python = environment("INGOT_PYTHON");
  if (!python || environment("INGOT_DEFAULT_MODEL"))
    throw_error(ErrorKind::bad_call,
                "no model given and the default one is not at {}: give one with -m, or fetch it with `make model`",
                path);
  fetch_with(*python);
  return path;
}

}  // namespace ingot::cli
