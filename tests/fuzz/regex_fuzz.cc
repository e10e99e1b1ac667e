// Any bytes as a regular expression.
#include <cstddef>
#include <cstdint>

#include "grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  fuzz::compile_and_walk(
      data, size, [](std::string text) { return grammar::Grammar::regex(fuzz::small_vocabulary(), std::move(text)); });
  return 0;
}
