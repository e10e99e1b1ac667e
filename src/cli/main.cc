#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/hub_models.h"
#include "cli/options.h"
#include "cli/restart.h"
#include "core/error.h"
#include "formats/mapped_file.h"

namespace {

constexpr int kBadCall = 2;
constexpr int kFailure = 1;

int fail(int status, const char* message) {
  fmt::print(stderr, "ingot: {}\n", message);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  ingot::exit_where_files_shrink();
  ingot::cli::remember_call(argc, argv);
  ingot::cli::Program program("ingot", "Ingot: an LLM inference engine. `ingot COMMAND --help` explains a command.");
  program.version("ingot " INGOT_VERSION);
  using namespace ingot::cli;
  for (const auto add :
       {add_run, add_chat, add_serve, add_bench, add_logits, add_perplexity, add_embed, add_tokenize, add_tools,
        add_grammar, add_inspect, add_quantize, add_doctor, add_tune, add_export_hf, add_pull, add_list, add_rm})
    add(program);
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && !arguments[0].starts_with("-")) {
      if (const auto command = program.find_command(arguments[0]))
        arguments = ingot::cli::expand_config_file(*command, std::move(arguments));
    }
    program.parse(std::move(arguments));
  } catch (const ingot::Error& error) {
    return fail(error.kind() == ingot::ErrorKind::bad_call ? kBadCall : kFailure, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return fail(kFailure, error.what());
  }
  return 0;
}
