#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/hub_models.h"
#include "core/error.h"

namespace {

constexpr int kBadCall = 2;
constexpr int kFailure = 1;

int fail(int status, const char* message) {
  fmt::print(stderr, "ingot: {}\n", message);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Ingot: an LLM inference engine. `ingot COMMAND --help` explains a command.", "ingot");
  app.set_version_flag("--version", "ingot " INGOT_VERSION);
  app.require_subcommand(1);
  ingot::cli::add_run(app);
  ingot::cli::add_chat(app);
  ingot::cli::add_serve(app);
  ingot::cli::add_bench(app);
  ingot::cli::add_logits(app);
  ingot::cli::add_perplexity(app);
  ingot::cli::add_tokenize(app);
  ingot::cli::add_inspect(app);
  ingot::cli::add_quantize(app);
  ingot::cli::add_doctor(app);
  ingot::cli::add_export_hf(app);
  ingot::cli::add_pull(app);
  ingot::cli::add_list(app);
  ingot::cli::add_rm(app);
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && !arguments[0].starts_with("-")) {
      const std::vector<CLI::App*> commands =
          app.get_subcommands([&](CLI::App* c) { return c->get_name() == arguments[0]; });
      if (commands.empty())
        return fail(kBadCall, fmt::format("there is no command `{}`; see `ingot --help`", arguments[0]).c_str());
      arguments = ingot::cli::expand_config_file(*commands[0], std::move(arguments));
    }
    std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
    app.parse(std::move(arguments));
  } catch (const CLI::Success& request) {  // --help and --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return fail(kBadCall, fmt::format("{}; see `ingot --help`", error.what()).c_str());
  } catch (const ingot::Error& error) {
    return fail(error.kind() == ingot::ErrorKind::bad_call ? kBadCall : kFailure, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return fail(kFailure, error.what());
  }
  return 0;
}
