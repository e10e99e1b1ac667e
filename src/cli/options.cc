#include "cli/options.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "cli/mistakes.h"
#include "core/error.h"
#include "core/sampling_ranges.h"
#include "core/settings.h"

namespace ingot::cli {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Of a text that is a number: fault_of_number() looks first.
std::string fault_of(const SamplingRange& range, const std::string& text) {
  const auto fault = outside(range, std::strtod(text.c_str(), nullptr));
  return fault ? fault->reason : std::string();
}

// Empty where every number of the type will do.
std::string bounds_in_words(const SamplingRange& range) {
  if (range.most >= kMostInt32 && range.above) return fmt::format("above {}", range.least);
  if (range.most >= kMostInt32) return range.least == 0 ? "" : fmt::format("at least {}", range.least);
  return fmt::format("{}{} to {}", range.above ? "above " : "", range.least, range.most);
}

// Whether the variable can hold the value. Without this the parser only says that it could not.
template <typename T>
std::string fault_of_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool whole = std::is_integral_v<T>;
  if (text.empty() || *end != '\0' || (whole && value != std::floor(value)))
    return fmt::format("must be a {}number, got {}", whole ? "whole " : "", text);
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    if (value < static_cast<double>(Limits::min()))
      return fmt::format("must be at least {}, got {}", Limits::min(), text);
    if (value > static_cast<double>(Limits::max()))
      return fmt::format("must be at most {}, got {}", Limits::max(), text);
  }
  return "";
}

template <typename T>
struct Element {
  using type = T;
};
template <typename T>
struct Element<std::vector<T>> {
  using type = T;
};

// --help in our words: a short name of what an option takes, its bounds and its default behind what it does.
class Help : public CLI::Formatter {
 public:
  Help() {
    label("SUBCOMMAND", "COMMAND");
    label("Positionals", "Arguments");
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string kind = kind_of(*option).first;
    if (kind == "INT" || kind == "UINT" || kind == "FLOAT") kind = "N";
    return " " + kind + (option->get_required() ? " (required)" : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string bounds = kind_of(*option).second, value = option->get_default_str();
    if (!bounds.empty() && bounds != "FILE") text += fmt::format(" ({})", bounds);
    if (!value.empty()) text += fmt::format(" [{}]", value);
    return text;
  }

  // Options of which one may be given stand under a heading, as others do.
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    std::string groups, commands;
    for (const CLI::App* part : app->get_subcommands({})) {
      if (!part->get_name().empty()) {
        commands += make_subcommand(part);
        continue;
      }
      groups += fmt::format("\n{} ({}):\n", part->get_group(), part->get_description());
      for (const CLI::Option* option : part->get_options({}))
        if (option != part->get_help_ptr()) groups += make_option(option, false);
    }
    return groups + (commands.empty() ? "" : "\nCommands:\n" + commands);
  }

 private:
  // The parser keeps them in one text: "INT:0 to 1024".
  static std::pair<std::string, std::string> kind_of(const CLI::Option& option) {
    const std::string name = option.get_type_name();
    const size_t colon = name.find(':');
    return {name.substr(0, colon), colon == std::string::npos ? "" : name.substr(colon + 1)};
  }
};

}  // namespace

Option Option::show_default() { return Option(*option_->capture_default_str()); }
Option Option::required() { return Option(*option_->required()); }
Option Option::type_name(const char* name) { return Option(*option_->type_name(name)); }
Option Option::split_at(char delimiter) { return Option(*option_->delimiter(delimiter)); }
Option Option::excludes(Option other) { return Option(*option_->excludes(other.option_)); }
Option Option::one_value_each() { return Option(*option_->allow_extra_args(false)); }

Option Option::non_negative() { return range(0, kNoLimit); }
Option Option::positive() { return within({"", 0, kNoLimit, true}); }
Option Option::range(double least, double most) { return within({"", least, most}); }
Option Option::within(const SamplingRange& range) {
  return Option(*option_->check(
      CLI::Validator([range](std::string& text) { return fault_of(range, text); }, bounds_in_words(range))));
}
Option Option::not_empty() {
  return Option(*option_->check(
      CLI::Validator([](std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); }, "")));
}
Option Option::one_of(std::vector<std::string> values, std::vector<std::string> declined) {
  const std::string all = fmt::format("{}", fmt::join(values, ", "));
  values.insert(values.end(), declined.begin(), declined.end());
  return Option(*option_->check(CLI::Validator(
      [values = std::move(values), all](std::string& text) {
        if (std::ranges::find(values, text) != values.end()) return std::string();
        return fmt::format("must be one of {}, got {}", all, text);
      },
      all)));
}
Option Option::existing_file() { return Option(*option_->check(CLI::ExistingFile)); }
Option Option::bytes() {
  const CLI::AsSizeValue read(false);
  return Option(*option_
                     ->transform(CLI::Validator(
                         [read](std::string& text) {
                           const std::string given = text;
                           try {
                             if (read(text).empty()) return std::string();
                           } catch (const CLI::Error&) {  // an unknown unit
                           }
                           return "must be a size such as 64MiB, got " + given;
                         },
                         ""))
                     ->type_name("BYTES"));
}

bool Option::is_given() const { return option_->count() > 0; }
bool Option::is_switch() const { return option_->get_expected_max() == 0; }
bool Option::is_repeated() const { return option_->get_expected_max() > 1 && option_->get_delimiter() == '\0'; }
const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }
const std::vector<std::string>& Option::short_names() const { return option_->get_snames(); }

template <typename T>
Option Options::option(const char* names, T& value, const char* help) {
  CLI::Option* option = app_->add_option(names, value, help);
  using Number = typename Element<T>::type;
  if constexpr (std::is_arithmetic_v<Number>) option->check(CLI::Validator(fault_of_number<Number>, ""));
  return Option(*option);
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

namespace {

bool is_number(const std::string& word) {
  char* end = nullptr;
  std::strtod(word.c_str(), &end);
  return !word.empty() && *end == '\0';
}

// The words of a command line in the parser's order, judged before the parser sees them: it takes -ngl for `-n gl`, and
// tells what is missing before what is wrong.
class Words {
 public:
  Words(const CLI::App& command, const std::vector<std::string>& words) : command_(command), words_(words) {}

  void check() {
    for (; at_ < words_.size() && words_[at_] != "--"; ++at_) {
      const std::string& word = words_[at_];
      if (word.size() < 2 || word[0] != '-' || is_number(word)) continue;
      check_option(word);
    }
  }

 private:
  void check_option(const std::string& word) {
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    std::string name = word.substr(0, equals);
    bool has_value = equals != std::string::npos;
    CLI::Option* option = find(name);
    if (option == nullptr && word[1] != '-' && word.size() > 2 && !std::isalpha(static_cast<unsigned char>(word[2]))) {
      name = word.substr(0, 2);  // -n5
      option = find(name);
      has_value = true;
    }
    if (option == nullptr) fail("there is no option {}{}", name, remedy_for_option(name, names()));
    if (!given_.insert(option).second && option->get_expected_max() == 1 && option->get_type_size() > 0)
      fail("{} was given twice", name);
    if (option->get_expected_max() == 0 || option->get_type_size() == 0 || has_value) return;
    if (at_ + 1 == words_.size()) fail("{} needs a value", name);
    const std::string& value = words_[at_ + 1];
    if (value.size() > 1 && value[0] == '-' && find(value.substr(0, value.find('='))) != nullptr)
      fail("{} needs a value, and {} is an option", name, value);
    ++at_;
  }

  CLI::Option* find(const std::string& name) const { return const_cast<CLI::App&>(command_).get_option_no_throw(name); }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    std::vector<const CLI::App*> places =
        command_.get_subcommands([](const CLI::App* group) { return group->get_name().empty(); });
    places.push_back(&command_);
    for (const CLI::App* place : places)
      for (const CLI::Option* option : place->get_options())
        for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
    return all;
  }

  template <typename... Parts>
  [[noreturn]] void fail(fmt::format_string<Parts...> format, Parts&&... parts) const {
    throw_error(ErrorKind::bad_call, "{}; see `ingot {} --help`", fmt::format(format, std::forward<Parts>(parts)...),
                command_.get_name());
  }

  const CLI::App& command_;
  const std::vector<std::string>& words_;
  size_t at_ = 0;
  std::set<const CLI::Option*> given_;
};

}  // namespace

Program::Program(const char* name, const char* help) : app_(std::make_unique<CLI::App>(help, name)) {
  app_->formatter(std::make_shared<Help>());
  app_->set_help_flag("-h,--help", "what you are reading");
}
Program::~Program() = default;

Options Program::root() { return Options(*app_); }
void Program::version(const char* text) { app_->set_version_flag("--version", text, "print the version"); }

Options Program::add_command(const char* name, const char* help) {
  app_->require_subcommand(1);
  return Options(*app_->add_subcommand(name, help)->group("Commands"));
}

std::optional<Options> Program::find_command(const std::string& name) {
  const auto found = app_->get_subcommands([&](CLI::App* command) { return command->get_name() == name; });
  if (found.empty()) return std::nullopt;
  return Options(*found[0]);
}

void Program::parse(std::vector<std::string> arguments) {
  CLI::App* command = app_.get();
  const std::vector<CLI::App*> commands = app_->get_subcommands([](CLI::App*) { return true; });
  if (!commands.empty()) {
    if (!arguments.empty() && arguments[0] == "help") {
      std::rotate(arguments.begin(), arguments.begin() + 1, arguments.end());
      arguments.back() = "--help";
    } else if (!arguments.empty() && arguments[0] == "version") {
      arguments[0] = "--version";
    }
    if (arguments.empty()) throw_error(ErrorKind::bad_call, "give a command, such as `ingot chat`; see `ingot --help`");
    if (!arguments[0].starts_with("-")) {
      const auto found =
          std::ranges::find_if(commands, [&](const CLI::App* one) { return one->get_name() == arguments[0]; });
      if (found == commands.end()) {
        std::vector<std::string> names;
        for (const CLI::App* one : commands) names.push_back(one->get_name());
        throw_error(ErrorKind::bad_call, "there is no command `{}`{}; see `ingot --help`", arguments[0],
                    remedy_for_command(arguments[0], names));
      }
      command = *found;
    }
  }
  const std::vector<std::string> words(arguments.begin() + (command == app_.get() ? 0 : 1), arguments.end());
  Words(*command, words).check();
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::Success& request) {  // --help and --version
    app_->exit(request);
  } catch (const CLI::ExtrasError&) {
    throw_error(ErrorKind::bad_call, "`{}` is one word too many; see `ingot {} --help`", command->remaining()[0],
                command->get_name());
  } catch (const CLI::ParseError& error) {
    throw_error(ErrorKind::bad_call, "{}; see `ingot {} --help`", error.what(), command->get_name());
  }
}

}  // namespace ingot::cli
