#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "core/sampling_ranges.h"
#include "core/settings.h"

namespace ingot::cli {

Option Option::show_default() { return Option(*option_->capture_default_str()); }
Option Option::required() { return Option(*option_->required()); }
Option Option::type_name(const char* name) { return Option(*option_->type_name(name)); }
Option Option::split_at(char delimiter) { return Option(*option_->delimiter(delimiter)); }
Option Option::one_value_each() { return Option(*option_->allow_extra_args(false)); }

Option Option::non_negative() { return Option(*option_->check(CLI::NonNegativeNumber)); }
Option Option::positive() { return Option(*option_->check(CLI::PositiveNumber)); }
Option Option::range(int least, int most) { return Option(*option_->check(CLI::Range(least, most))); }
Option Option::range(uint64_t least, uint64_t most) { return Option(*option_->check(CLI::Range(least, most))); }
Option Option::range(double least, double most) { return Option(*option_->check(CLI::Range(least, most))); }
Option Option::within(const SamplingRange& range) {
  const std::string bounds = range.most == kMostInt32
                                 ? fmt::format("at least {}", range.least)
                                 : fmt::format("{} {} to {}", range.above ? "above" : "from", range.least, range.most);
  return Option(*option_->check(CLI::Validator(
      [range](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0') return "must be a number, got " + text;
        const auto fault = outside(range, value);
        return fault ? fault->reason : std::string();
      },
      bounds)));
}
Option Option::one_of(std::vector<std::string> values) {
  return Option(*option_->check(CLI::IsMember(std::move(values))));
}
Option Option::existing_file() { return Option(*option_->check(CLI::ExistingFile)); }
Option Option::bytes() { return Option(*option_->transform(CLI::AsSizeValue(false))->type_name("BYTES")); }

bool Option::is_switch() const { return option_->get_expected_max() == 0; }
bool Option::is_repeated() const { return option_->get_expected_max() > 1 && option_->get_delimiter() == '\0'; }
const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }
const std::vector<std::string>& Option::short_names() const { return option_->get_snames(); }

template <typename T>
Option Options::option(const char* names, T& value, const char* help) {
  return Option(*app_->add_option(names, value, help));
}
template Option Options::option(const char*, std::string&, const char*);
template Option Options::option(const char*, uint16_t&, const char*);
template Option Options::option(const char*, int32_t&, const char*);
template Option Options::option(const char*, int64_t&, const char*);
template Option Options::option(const char*, uint64_t&, const char*);
template Option Options::option(const char*, float&, const char*);
template Option Options::option(const char*, double&, const char*);
template Option Options::option(const char*, std::vector<int32_t>&, const char*);
template Option Options::option(const char*, std::vector<std::string>&, const char*);
Option Options::flag(const char* names, bool& value, const char* help) {
  return Option(*app_->add_flag(names, value, help));
}

Options Options::exactly_one(const char* name, const char* help) {
  CLI::App* group = app_->add_option_group(name, help);
  group->require_option(1);
  return Options(*group);
}

Options Options::at_most_one(const char* name, const char* help) {
  CLI::App* group = app_->add_option_group(name, help);
  group->require_option(0, 1);
  return Options(*group);
}

void Options::heading(const char* name) {
  app_->option_defaults()->group(name != nullptr ? name : CLI::OptionDefaults().get_group());
}

void Options::footer(const char* text) { app_->footer(text); }
void Options::callback(std::function<void()> run, bool check_settings) {
  app_->callback([run = std::move(run), check_settings] {
    if (check_settings) Settings::from_environment();
    run();
  });
}

const std::string& Options::name() const { return app_->get_name(); }

std::optional<Option> Options::find_option(const std::string& name) const {
  CLI::Option* option = app_->get_option_no_throw(name);
  if (option == nullptr) return std::nullopt;
  return Option(*option);
}

Program::Program(const char* name, const char* help) : app_(std::make_unique<CLI::App>(help, name)) {}
Program::~Program() = default;

Options Program::root() { return Options(*app_); }
void Program::version(const char* text) { app_->set_version_flag("--version", text); }

Options Program::add_command(const char* name, const char* help) {
  app_->require_subcommand(1);
  return Options(*app_->add_subcommand(name, help));
}

std::optional<Options> Program::find_command(const std::string& name) {
  const auto found = app_->get_subcommands([&](CLI::App* command) { return command->get_name() == name; });
  if (found.empty()) return std::nullopt;
  return Options(*found[0]);
}

void Program::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::Success& request) {  // --help and --version
    app_->exit(request);
  } catch (const CLI::ParseError& error) {
    throw_error(ErrorKind::bad_call, "{}; see `{} --help`", error.what(), app_->get_name());
  }
}

}  // namespace ingot::cli
