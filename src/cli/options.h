#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Only options.cc includes this library: its header takes longer to compile than most of our files.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ingot {
struct SamplingRange;
}

namespace ingot::cli {

// A flag or a positional argument of a command. A handle, passed by value; the program owns what it refers to. The
// setters return it again, so that they can be chained.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option show_default();  // the variable's value at this moment, in --help
  Option required();
  Option type_name(const char* name);  // what --help calls the value
  Option split_at(char delimiter);     // one word may hold several values
  Option excludes(Option other);       // not both
  Option one_value_each();             // takes only the next word, and is repeated for more values

  // What the value must be; --help says so too.
  Option non_negative();
  Option positive();
  Option range(double least, double most);
  Option not_empty();
  Option within(const SamplingRange& range);
  // `declined`: what is taken too, for the command to say why not; --help does not name it.
  Option one_of(std::vector<std::string> values, std::vector<std::string> declined = {});
  Option existing_file();
  Option bytes();  // also as 16MiB or 1G

  bool is_given() const;                                // on the command line or by a file
  bool is_switch() const;                               // takes no value
  bool is_repeated() const;                             // takes several values, each a word of its own
  const std::vector<std::string>& long_names() const;   // without the dashes
  const std::vector<std::string>& short_names() const;  // without the dash

 private:
  CLI::Option* option_;
};

// The options of a command, or a group of them; a handle as Option is.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(&app) {}

  // `names` is "-m,--model", or "NAME" for a positional argument. The variable must outlive the program.
  // T: std::string, uint16_t, int32_t, int64_t, uint64_t, float, double, or a vector of std::string or int32_t.
  template <typename T>
  Option option(const char* names, T& value, const char* help);
  Option flag(const char* names, bool& value, const char* help);  // a switch: no value

  // Options of which exactly one must be given, or at most one.
  Options exactly_one(const char* name, const char* help);
  Options at_most_one(const char* name, const char* help);

  void heading(const char* name);  // in --help, of the options added from now on; nullptr: the usual one; "": hidden
  void footer(const char* text);   // the end of --help
  // What the command does. Before it the variables of the environment are checked, those too that it does not look at.
  void callback(std::function<void()> run, bool check_settings = true);

  const std::string& name() const;
  std::optional<Option> find_option(const std::string& name) const;  // "--model"

 private:
  CLI::App* app_;
};

// The root of the commands, or for a test one command on its own.
class Program {
 public:
  Program(const char* name, const char* help);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Options root();
  void version(const char* text);                           // what --version prints
  Options add_command(const char* name, const char* help);  // from now on one must be given
  // The same for one that is a function of its arguments, which live as long as the program.
  template <typename Args>
  std::pair<Options, Args&> add_command(const char* name, const char* help, void (*run)(const Args&)) {
    auto args = std::make_shared<Args>();
    Options command = add_command(name, help);
    command.callback([args, run] { run(*args); });
    return {command, *args};
  }
  std::optional<Options> find_command(const std::string& name);

  // Fills the variables in and runs the callback of the command; or prints what --help or --version ask for, under the
  // names of other programs too (`help run`, `version`). The arguments are without the program's own name. Throws
  // Error(bad_call) that names the mistake and the remedy, and whatever the callback throws.
  void parse(std::vector<std::string> arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace ingot::cli
