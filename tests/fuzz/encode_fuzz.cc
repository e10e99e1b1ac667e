// Any bytes as text, for one byte-level and one SentencePiece tokenizer: byte-level text must come back whole, streamed
// text must equal decoded text, and the scanners must cut where their patterns do.
#include <cstddef>
#include <cstdint>
#include <string>

#include "text/detokenizer.h"
#include "text/regex.h"
#include "text/tokenizer_load.h"
#include "text/unicode.h"
#include "text/word_scanners.h"
#include "time_bound.h"

namespace {

using namespace ingot;

void check_scanner(const Regex& regex, WordScanner scanner, std::string_view text) {
  std::vector<Regex::Match> matches;
  regex.find_all(text, matches);
  const char* p = text.data();
  for (const Regex::Match& match : matches) {
    p = scanner(CharClasses::get(), p, text.data() + text.size());
    if (p != text.data() + match.end) __builtin_trap();
  }
  if (p != text.data() + text.size()) __builtin_trap();
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer, false);
  std::string out;
  for (int32_t id : ids) {
    const std::string part = detokenizer.push(id);
    if (!is_valid_utf8(part)) __builtin_trap();
    out += part;
  }
  return out + detokenizer.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path folder = std::filesystem::path(INGOT_FIXTURES) / "tokenizers";
  static const auto bytes = load_tokenizer(folder / "llama3");
  static const auto pieces = load_tokenizer(folder / "llama2");
  static const Regex gpt2(kGpt2Pattern), llama3(kLlama3Pattern), tekken(kTekkenPattern);

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string valid = replace_invalid_utf8(text);
  const auto ids = [&] {
    const TimeBound bound(size);
    return bytes->encode(text, {.add_special = false, .parse_special = true});
  }();
  if (bytes->decode(ids, false) != valid) __builtin_trap();
  if (stream(*bytes, ids) != valid) __builtin_trap();
  const auto spm = [&] {
    const TimeBound bound(size);
    return pieces->encode(text);
  }();
  if (stream(*pieces, spm) != pieces->decode(spm, false)) __builtin_trap();
  check_scanner(gpt2, scan_gpt2, valid);
  check_scanner(llama3, scan_llama3, valid);
  check_scanner(tekken, scan_tekken, valid);
  // The same bytes as a stream of ids.
  std::vector<int32_t> random;
  for (size_t i = 0; i + 1 < size; i += 2) random.push_back(data[i] | data[i + 1] << 8);
  for (const auto* tokenizer : {bytes.get(), pieces.get()})
    if (stream(*tokenizer, random) != tokenizer->decode(random, false)) __builtin_trap();
  return 0;
}
