// What grammars cost on one thread: a compile, and a mask for every token of the texts.
//   grammar_bench MODEL CASES.jsonl [--each | --tokens]     MODEL: a .gguf file or a folder with a tokenizer
// A line of CASES is {"schema": ..., "texts": ["...", ...]}; the texts are what the schema accepts. Prints one line of
// JSON: milliseconds of a compile and microseconds of a mask (p50, p90, p99, the largest), and what was declined or
// refused. --each: a line a case before it. --tokens: measures nothing, and prints the vocabulary (base64) and each
// case with the token ids of its texts, for bench/grammar_peers.py. Times are those of the processor, so that a busy
// machine counts less.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/matcher.h"
#include "grammar/tokenizer_vocabulary.h"

namespace {

using namespace ingot;
using nlohmann::ordered_json;

double now_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

ordered_json summary(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    if (values.empty()) return 0.0;
    const double value =
        values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
    return std::round(value * 1000) / 1000;
  };
  return {{"count", values.size()}, {"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}, {"max", at(1)}};
}

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = i; j < i + 3; ++j) group = group << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0);
    for (size_t j = 0; j < 4; ++j) out.push_back(i + j > bytes.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63]);
  }
  return out;
}

int show_tokens(const std::string& model, const std::string& cases) {
  const auto tokenizer = open_tokenizer(model);
  ordered_json tokens = ordered_json::array();
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    tokens.push_back(tokenizer->is_special(id) ? "" : base64(tokenizer->token_bytes(id)));
  std::cout << ordered_json{{"eos", tokenizer->eos_id()}, {"tokens", tokens}} << "\n";
  std::ifstream file(cases);
  for (std::string line; std::getline(file, line);) {
    const auto job = ordered_json::parse(line);
    ordered_json ids = ordered_json::array();
    for (const std::string text : job["texts"])
      ids.push_back(tokenizer->encode(text, {.add_special = false, .parse_special = false}));
    std::cout << ordered_json{{"schema", job["schema"].dump()}, {"ids", ids}} << "\n";
  }
  return 0;
}

int run(const std::string& model, const std::string& cases, bool each) {
  const auto tokenizer = open_tokenizer(model);
  const double begun = now_us();
  const auto vocabulary = grammar::make_vocabulary(*tokenizer);
  const double vocabulary_ms = (now_us() - begun) / 1e3;

  std::ifstream file(cases);
  if (!file) throw_error(ErrorKind::io, "cannot read {}", cases);
  std::vector<double> compiles, masks;
  size_t declined = 0, refused = 0, tokens = 0;
  std::vector<uint32_t> bits(vocabulary->mask_words());
  for (std::string line; std::getline(file, line);) {
    const auto job = ordered_json::parse(line);
    const std::string schema = job["schema"].dump();
    std::shared_ptr<grammar::Grammar> compiled;
    const double start = now_us();
    try {
      compiled = grammar::Grammar::json_schema(vocabulary, schema);
    } catch (const Error& error) {
      ++declined;
      if (each) std::cout << ordered_json{{"declined", error.what()}, {"ms", (now_us() - start) / 1e3}} << "\n";
      compiles.push_back((now_us() - start) / 1e3);
      continue;
    }
    compiles.push_back((now_us() - start) / 1e3);
    double slowest = 0;
    std::string slowest_after;  // the end of the text before it
    for (const std::string text : job["texts"]) {
      grammar::Matcher matcher(compiled);
      for (const int32_t token : tokenizer->encode(text, {.add_special = false, .parse_special = false})) {
        const double before = now_us();
        matcher.fill_mask(bits);
        masks.push_back(now_us() - before);
        if (masks.back() > slowest) {
          slowest = masks.back();
          slowest_after = matcher.text().substr(matcher.text().size() - std::min<size_t>(40, matcher.text().size()));
        }
        ++tokens;
        const bool allowed = (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
        const bool taken = matcher.accept(token);
        if (allowed != taken)
          throw_error(ErrorKind::internal, "the mask and the matcher disagree about token {}", token);
        if (!taken) {
          ++refused;
          break;
        }
      }
    }
    if (each)
      std::cout << ordered_json{{"compile_ms", compiles.back()},
                                {"slowest_mask_us", slowest},
                                {"after", slowest_after},
                                {"bytes", schema.size()},
                                {"id", job.value("id", "")}}
                       .dump(-1, ' ', false, ordered_json::error_handler_t::replace)
                << "\n";
  }
  std::cout << ordered_json{{"vocabulary", vocabulary->size()},
                            {"vocabulary_ms", vocabulary_ms},
                            {"compile_ms", summary(compiles)},
                            {"mask_us", summary(masks)},
                            {"declined", declined},
                            {"refused", refused},
                            {"tokens", tokens}}
            << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: grammar_bench MODEL CASES.jsonl [--each | --tokens]\n";
    return 2;
  }
  try {
    const std::string option = argc > 3 ? argv[3] : "";
    return option == "--tokens" ? show_tokens(argv[1], argv[2]) : run(argv[1], argv[2], option == "--each");
  } catch (const Error& error) {
    std::cerr << "grammar_bench: " << error.what() << "\n";
    return 1;
  }
}
