// Tokenizer throughput on one thread, in MB (10^6 bytes) of text for each second of CPU time.
//   tokenizer_bench TOKENIZER FILE [seconds]       TOKENIZER: a .gguf file or a model folder
//   tokenizer_bench TOKENIZER FILE records         FILE holds texts, each after its length (4 bytes, little-endian):
//   prints the
//                                                  token ids of each on one line, for comparing
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "formats/gguf.h"
#include "text/tokenizer_load.h"

namespace {

// CPU time of the process, so that a busy machine does not count.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Prompt-sized texts: cut at the first line end after 8000 bytes.
std::vector<std::string_view> cut(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t line = text.size() > 8000 ? text.find('\n', 8000) : std::string_view::npos;
    const size_t length = line == std::string_view::npos ? text.size() : line + 1;
    parts.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return parts;
}

int run(int argc, char** argv) {
  const std::filesystem::path model = argv[1];
  std::ifstream file(argv[2], std::ios::binary);
  if (!file) ingot::throw_error(ingot::ErrorKind::io, "cannot read {}", argv[2]);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const double start = now();
  const auto tokenizer = model.extension() == ".gguf" ? ingot::load_tokenizer(*ingot::GgufFile::open(model))
                                                      : ingot::load_tokenizer(model);
  const double loaded = now() - start;
  if (argc > 3 && std::string(argv[3]) == "records") {
    for (size_t at = 0; at + 4 <= text.size();) {
      uint32_t size = 0;
      for (int i = 3; i >= 0; --i) size = size << 8 | static_cast<uint8_t>(text[at + static_cast<size_t>(i)]);
      for (int32_t id : tokenizer->encode(std::string_view(text).substr(at + 4, size), {.add_special = false}))
        std::printf("%d ", id);
      std::printf("\n");
      at += 4 + size;
    }
    return 0;
  }
  const double wanted = argc > 3 ? std::atof(argv[3]) : 1.0;
  const std::vector<std::string_view> parts = cut(text);
  double best = 1e9;
  size_t tokens = 0;
  int rounds = 0;
  for (const double end = now() + wanted; now() < end || rounds < 2; ++rounds) {
    const double begin = now();
    tokens = 0;
    for (std::string_view part : parts) tokens += tokenizer->encode(part, {.add_special = false}).size();
    best = std::min(best, now() - begin);
  }
  const double mb = static_cast<double>(text.size()) / 1e6;
  std::printf("{\"mb_s\": %.2f, \"tok_s\": %.0f, \"tokens\": %zu, \"bytes\": %zu, \"rounds\": %d, \"load_ms\": %.1f}\n",
              mb / best, static_cast<double>(tokens) / best, tokens, text.size(), rounds, loaded * 1e3);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER FILE [seconds | records]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const ingot::Error& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
}
