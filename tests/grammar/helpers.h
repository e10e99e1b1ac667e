#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "grammar/matcher.h"
#include "soak.h"

namespace ingot::grammar::test {

// One token a byte; token 256 ends a text, 257 is the special token <tool>.
inline std::shared_ptr<const Vocabulary> byte_vocabulary() {
  static const auto made = [] {
    std::vector<Vocabulary::Token> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back({std::string(1, static_cast<char>(byte))});
    tokens.push_back({"<end>", true});
    tokens.push_back({"<tool>", true});
    return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{256});
  }();
  return made;
}
inline constexpr int32_t kEnd = 256, kTool = 257;

inline bool accepts(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept_bytes(text) == text.size() && matcher.is_complete();
}

inline std::shared_ptr<Grammar> schema(std::string text, Options options = {}) {
  if (ingot::test::kSanitized)
    options.limits.max_compile_time = options.limits.max_step_time = std::chrono::seconds(20);
  return Grammar::json_schema(byte_vocabulary(), std::move(text), options);
}

// The error of a schema that is refused: "param: message".
template <typename Compile>
std::string refusal(Compile compile) {
  try {
    compile();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_call);
    return error.what();
  }
  return "accepted";
}

struct Random {
  uint64_t state;
  uint32_t below(uint32_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state >> 33) % limit);
  }
};

}  // namespace ingot::grammar::test
