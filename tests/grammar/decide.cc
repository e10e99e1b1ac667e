// Which texts grammars accept, for tests that compare with other programs: a line of JSON in, a line out.
//   {"schema": ..., "texts": [...]} -> {"accepts": [true, ...], "bytes": [12, ...]}, how many bytes were taken, or
//   {"error": "...", "param": "#/..."}
// "gbnf" or "regex" (texts) may stand for "schema"; "strict" and "formats" are options.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/matcher.h"

namespace {

using namespace ingot;
using nlohmann::json;

std::shared_ptr<const grammar::Vocabulary> bytes_alone() {
  std::vector<grammar::Vocabulary::Token> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back({std::string(1, static_cast<char>(byte))});
  return std::make_shared<const grammar::Vocabulary>(tokens, std::vector<int32_t>{});
}

std::shared_ptr<grammar::Grammar> compile(const nlohmann::ordered_json& job,
                                          const std::shared_ptr<const grammar::Vocabulary>& vocabulary) {
  const grammar::Options options{.strict = job.value("strict", false), .assert_formats = job.value("formats", true)};
  if (job.contains("gbnf")) return grammar::Grammar::gbnf(vocabulary, job["gbnf"], options);
  if (job.contains("regex")) return grammar::Grammar::regex(vocabulary, job["regex"], options);
  return grammar::Grammar::json_schema(vocabulary, job["schema"].dump(), options);
}

}  // namespace

int main() {
  const auto vocabulary = bytes_alone();
  for (std::string line; std::getline(std::cin, line);) {
    json out;
    try {
      const auto job = nlohmann::ordered_json::parse(line);
      const auto compiled = compile(job, vocabulary);
      out["accepts"] = out["bytes"] = json::array();
      for (const std::string text : job["texts"]) {
        grammar::Matcher matcher(compiled);
        const size_t taken = matcher.accept_bytes(text);
        out["bytes"].push_back(taken);
        out["accepts"].push_back(taken == text.size() && matcher.is_complete());
      }
    } catch (const Error& error) {
      out = {{"error", error.what()}, {"param", error.param()}};
    }
    std::cout << out.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
}
