#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/matcher.h"

namespace ingot::fuzz {

inline std::shared_ptr<const grammar::Vocabulary> small_vocabulary() {
  static const auto made = [] {
    std::vector<grammar::Vocabulary::Token> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back({std::string(1, static_cast<char>(byte))});
    for (const char* text : {"{\"", "\":", "\",", "abc", "  ", "null", "[1", "]]", "00", "\xC3\xA9"})
      tokens.push_back({text});
    tokens.push_back({"<end>", true});
    return std::make_shared<const grammar::Vocabulary>(tokens, std::vector<int32_t>{266});
  }();
  return made;
}

// What a grammar that compiled must keep to: every token of a mask is accepted, and where none is the text is complete.
inline void walk(const std::shared_ptr<grammar::Grammar>& compiled, uint64_t seed) {
  grammar::Matcher matcher(compiled);
  std::vector<uint32_t> bits(compiled->vocabulary().mask_words());
  for (int step = 0; step < 24 && !matcher.is_finished(); ++step) {
    matcher.fill_mask(bits);
    std::vector<int32_t> allowed;
    for (size_t id = 0; id < compiled->vocabulary().size(); ++id)
      if ((bits[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
    if (allowed.empty()) {
      if (!matcher.is_complete()) __builtin_trap();
      return;
    }
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (!matcher.accept(allowed[(seed >> 33) % allowed.size()])) __builtin_trap();
  }
  if (matcher.steps() > 2) matcher.rollback(2);
  matcher.forced(16);
}

// Compiles what `make` makes and walks it. Anything but an Error is a fault.
template <typename Make>
void compile_and_walk(const uint8_t* data, size_t size, Make make) {
  uint64_t seed = size;
  for (size_t i = 0; i < size; ++i) seed = seed * 31 + data[i];
  try {
    walk(make(std::string(reinterpret_cast<const char*>(data), size)), seed);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) __builtin_trap();
  }
}

}  // namespace ingot::fuzz
