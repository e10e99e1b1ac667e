// The files of packaging/ against the program they start, and the flags of `ingot serve` in a config file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "cli/config_file.h"
#include "cli/options.h"
#include "cli/serve_options.h"
#include "cli/slurp.h"
#include "core/error.h"

namespace ingot::cli {
namespace {

using testing::slurp;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kRoot = INGOT_FIXTURES "/../../";

std::string first_match(const std::string& text, const std::string& pattern) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex(pattern))) << pattern;
  return match.size() > 1 ? match[1].str() : "";
}

class ServeConfig : public ::testing::Test {
 protected:
  ServeConfig() {
    char name[] = "/tmp/ingot-packaging-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ServeConfig() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  ServeArgs parse(const std::string& config, std::vector<std::string> more = {}) {
    Program program("serve", "");
    ServeArgs args;
    add_serve_options(program.root(), args);
    more.insert(more.end(), {"--config", write("serve.conf", config)});
    more = expand_config_file(program.root(), std::move(more));
    program.parse(std::move(more));
    return args;
  }
  std::string folder_;
};

TEST_F(ServeConfig, RepeatableFlags) {
  const ServeArgs lines = parse("api-key = one\napi-key = \"two # no comment\"  # a comment\napi-key = -dash\n");
  EXPECT_THAT(lines.api_keys, ElementsAre("one", "two # no comment", "-dash"));
  const ServeArgs list = parse("cors-origin = [https://a.example, \"http://b,c\",'*']\nserved-model-name = one\n");
  EXPECT_THAT(list.cors_origins, ElementsAre("https://a.example", "http://b,c", "*"));
  EXPECT_THAT(list.served_names, ElementsAre("one"));
  const ServeArgs flags = parse("api-key = file\nport = 1\n", {"--api-key", "a", "--api-key=b", "--no-web"});
  EXPECT_THAT(flags.api_keys, ElementsAre("a", "b"));
  EXPECT_EQ(flags.port, 1);
  EXPECT_TRUE(flags.no_web);
}

TEST_F(ServeConfig, SizesAndTimes) {
  const ServeArgs args = parse("max-request-bytes = 2MiB\nmin-free-memory = 1000\nhead-timeout = 1.5\nno-web = true\n");
  EXPECT_EQ(args.max_request_bytes, uint64_t{2} << 20);
  EXPECT_EQ(args.min_free_memory, 1000u);
  EXPECT_EQ(to_milliseconds(args.head_timeout).count(), 1500);
  EXPECT_TRUE(args.no_web);
  EXPECT_THAT([&] { parse("max-request-bytes = some\n"); }, ThrowsMessage<Error>(HasSubstr("--max-request-bytes")));
  EXPECT_THAT([&] { parse("port = 65536\n"); }, ThrowsMessage<Error>(HasSubstr("--port")));
  EXPECT_THAT([&] { parse("head-timeout = -1\n"); }, ThrowsMessage<Error>(HasSubstr("--head-timeout")));
  EXPECT_THROW(parse("no-web = maybe\n"), Error);
  EXPECT_THROW(parse("no-such-flag = 1\n"), Error);
}

TEST_F(ServeConfig, TheSampleHasOnlyKnownSettings) {
  std::istringstream lines(slurp(kRoot + "packaging/ingot.conf"));
  const std::regex setting("(# )?([a-z-]+ = .*)");
  std::string everything;
  std::string line;
  int count = 0;
  for (std::smatch match; std::getline(lines, line);)
    if (std::regex_match(line, match, setting)) {
      everything += match[2].str() + "\n";
      ++count;
    }
  EXPECT_GT(count, 20);
  const ServeArgs args = parse(everything);
  EXPECT_EQ(args.max_request_bytes, ServeArgs().max_request_bytes);
  EXPECT_EQ(args.min_free_memory, ServeArgs().min_free_memory);
  EXPECT_THAT(args.cors_origins, ElementsAre("https://chat.example.com", "http://localhost:3000"));
  EXPECT_EQ(parse(slurp(kRoot + "packaging/ingot.conf")).port, 8000);
}

TEST_F(ServeConfig, ServiceManagersWaitForTheDrain) {
  const double drain = parse(slurp(kRoot + "packaging/ingot.conf")).drain_timeout;
  const std::string unit = slurp(kRoot + "packaging/ingot.service");
  const std::string plist = slurp(kRoot + "packaging/org.ingot.serve.plist");
  EXPECT_GE(std::stod(first_match(unit, "TimeoutStopSec=(\\d+)")), drain + 10);
  EXPECT_GE(std::stod(first_match(plist, "<key>ExitTimeOut</key>\\s*<integer>(\\d+)</integer>")), drain + 10);
}

TEST_F(ServeConfig, SystemdAcceptsTheUnit) {
  if (std::system("systemd-analyze --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no systemd-analyze here";
  // verify wants the program to exist.
  const std::string unit =
      std::regex_replace(slurp(kRoot + "packaging/ingot.service"), std::regex("/usr/local/bin/ingot"), "/bin/true");
  const std::string command = "systemd-analyze verify " + write("ingot.service", unit) + " >" + folder_ + "/says 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(slurp(folder_ + "/says"), ::testing::Not(HasSubstr("ingot.service")));
}

TEST_F(ServeConfig, ThePlistIsWellFormed) {
  std::string text = slurp(kRoot + "packaging/org.ingot.serve.plist");
  text = std::regex_replace(text, std::regex("<!--[^]*?-->|<\\?[^]*?\\?>|<!DOCTYPE[^>]*>"), "");
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)[^<>]*?(/?)>");
  for (std::sregex_iterator it(text.begin(), text.end(), tag), end; it != end; ++it) {
    const std::smatch& match = *it;
    if (match[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), match[2].str());
      open.pop_back();
    } else if (match[3].length() == 0) {
      open.push_back(match[2].str());
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(std::regex_replace(text, tag, "").find_first_of("<>&"), std::string::npos);
}

TEST_F(ServeConfig, TheDockerfileInstallsWhatTheSetUpDoes) {
  const std::string dockerfile = slurp(kRoot + "packaging/Dockerfile");
  std::istringstream lines(slurp(kRoot + "scripts/setup.sh"));
  const std::regex header("(headers=')?[a-z0-9_/A-Z.]+\\|([a-z0-9.-]+)\\|[^|]+\\|build'?");
  std::string line;
  int count = 0;
  for (std::smatch match; std::getline(lines, line);) {
    if (!std::regex_match(line, match, header)) continue;
    std::string package = match[2].str();
    if (package == "libgtest-dev" || package == "libgmock-dev") continue;  // no tests in the image
    if (package == "libboost-dev") package = "libboost1.81-dev";           // as on Debian 12
    EXPECT_THAT(dockerfile, HasSubstr(" " + package + " ")) << package;
    ++count;
  }
  EXPECT_GE(count, 5);
}

TEST_F(ServeConfig, TheDockerfileCopiesWhatIsNotIgnored) {
  const std::string ignore = slurp(kRoot + "packaging/Dockerfile.dockerignore");
  ASSERT_THAT(ignore, ::testing::StartsWith("*\n"));
  std::istringstream lines(slurp(kRoot + "packaging/Dockerfile"));
  std::string line, word;
  int count = 0;
  while (std::getline(lines, line)) {
    if (!line.starts_with("COPY ") || line.starts_with("COPY --from")) continue;
    std::istringstream words(line.substr(5));
    std::vector<std::string> names;
    while (words >> word) names.push_back(word);
    names.pop_back();  // where it goes
    for (const std::string& name : names) {
      EXPECT_TRUE(std::filesystem::exists(kRoot + name)) << name;
      EXPECT_THAT(ignore, HasSubstr("\n!" + name + "\n"));
      ++count;
    }
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace ingot::cli
