#include "cli/config_file.h"

#include <sstream>
#include <string_view>

#include "cli/common.h"
#include "cli/options.h"
#include "core/error.h"

namespace ingot::cli {
namespace {

std::string trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

// Where `wanted` first stands outside of quotes; npos when it does not.
size_t find_outside_quotes(std::string_view text, char wanted) {
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != '\0') {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == wanted) {
      return i;
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    }
  }
  return std::string_view::npos;
}

std::string unquote(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return std::string(text.substr(1, text.size() - 2));
  return std::string(text);
}

// The values of a line: one, or for a flag that may be repeated those of a list [a, b]. A flag that splits its value at
// commas itself gets the whole list.
std::vector<std::string> values_of(const Option& option, const std::string& text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return {unquote(text)};
  const std::string inside = trim(std::string_view(text).substr(1, text.size() - 2));
  if (!option.is_repeated()) return {inside};
  std::vector<std::string> values;
  std::string_view rest = inside;
  while (!rest.empty()) {
    const size_t comma = find_outside_quotes(rest, ',');
    const std::string value = trim(rest.substr(0, comma));
    if (!value.empty()) values.push_back(unquote(value));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return values;
}

// Whether the arguments have the option under any of its names: -m, --model, --model=x.
bool is_given(const Option& option, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    for (const std::string& name : option.long_names())
      if (argument == "--" + name || argument.starts_with("--" + name + "=")) return true;
    for (const std::string& name : option.short_names())
      if (argument.starts_with("-" + name) && !argument.starts_with("--")) return true;
  }
  return false;
}

// Takes `--config FILE` or `--config=FILE` out; returns the file, or nothing.
std::string take_config(std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) {
      std::string file = arguments[i].substr(9);
      arguments.erase(arguments.begin() + static_cast<int64_t>(i));
      return file;
    }
    if (arguments[i] == "--config" && i + 1 < arguments.size()) {
      std::string file = arguments[i + 1];
      arguments.erase(arguments.begin() + static_cast<int64_t>(i), arguments.begin() + static_cast<int64_t>(i) + 2);
      return file;
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> expand_config_file(const Options& command, std::vector<std::string> arguments) {
  const std::string path = take_config(arguments);
  if (path.empty()) return arguments;
  std::istringstream lines(read_file(path));
  std::vector<std::string> from_file;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = trim(std::string_view(line).substr(0, find_outside_quotes(line, '#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) throw_error(ErrorKind::bad_call, "{}:{}: must be `name = value`", path, number);
    const std::string name = trim(std::string_view(line).substr(0, equals));
    const std::string value = trim(std::string_view(line).substr(equals + 1));
    const std::optional<Option> option = command.find_option("--" + name);
    if (!option)
      throw_error(ErrorKind::bad_call, "{}:{}: `ingot {}` has no flag --{}", path, number, command.name(), name);
    if (is_given(*option, arguments)) continue;
    if (option->is_switch()) {
      if (unquote(value) != "true" && unquote(value) != "false")
        throw_error(ErrorKind::bad_call, "{}:{}: {} must be true or false", path, number, name);
      if (unquote(value) == "true") from_file.push_back("--" + name);
    } else {
      // In one word: a value may begin with a dash.
      for (const std::string& each : values_of(*option, value)) from_file.push_back("--" + name + "=" + each);
    }
  }
  arguments.insert(arguments.end(), from_file.begin(), from_file.end());
  return arguments;
}

}  // namespace ingot::cli
