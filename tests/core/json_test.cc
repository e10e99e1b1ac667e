#include "core/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

// What the text is refused for; both kinds of value have to say the same.
std::string reason(const std::string& text, const JsonLimits& limits = {}) {
  std::string plain;
  std::string ordered;
  try {
    (void)parse_json(text, "c.json", limits);
  } catch (const JsonError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file);
    EXPECT_EQ(error.what(), "c.json: " + error.reason());
    plain = error.reason();
  }
  try {
    (void)parse_ordered_json(text, "c.json", limits);
  } catch (const JsonError& error) {
    ordered = error.reason();
  }
  EXPECT_EQ(plain, ordered);
  return plain;
}

TEST(ParseJson, RefusesHostileText) {
  EXPECT_TRUE(reason(R"({"a": )").starts_with("is not valid JSON: parse error at line 1, column"))
      << reason(R"({"a": )");
  for (const char* text : {"", "{} trailing", "{\"a\": \"\xff\"}", "[1e999]", "[NaN]", "{'a': 1}", "[1,]"})
    EXPECT_TRUE(reason(text).starts_with("is not valid JSON")) << text;
  EXPECT_EQ(reason(std::string(100'000, '[')), "is nested deeper than 64 levels");
  EXPECT_EQ(reason("[[[]]]", {.max_depth = 2}), "is nested deeper than 2 levels");
  EXPECT_EQ(reason("[[\"[[[\\\"[[[\"]]", {.max_depth = 2}), "");
  EXPECT_EQ(reason("[1, 2]", {.max_bytes = 4}), "6 bytes of JSON are more than the 4 allowed");
  EXPECT_EQ(reason("[1, 2]", {.max_values = 2}), "holds more than 2 values");
  EXPECT_EQ(reason(R"([{"a": 1}, {"a": {"b": 1}}])", {.max_keys = 2}), "holds more than 2 keys");
  EXPECT_EQ(reason(R"({"a": 1, "b": {"a": 1}, "a": 2})"), "has the key a twice in one object");
  EXPECT_EQ(reason(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"), "");
  EXPECT_EQ(reason(R"({"a": 1, "a": 2})", {.unique_keys = false}), "");
}

TEST(ParseJson, BuildsTheValue) {
  const std::string text = R"({"z":[1,-2,2.5,true,null,"\u00e9"],"a":{"y":{},"b":[]},"z2":18446744073709551615})";
  EXPECT_EQ(parse_ordered_json(text, "").dump(-1, ' ', true), text);
  EXPECT_EQ(parse_json(text, ""), nlohmann::json::parse(text));
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "", {.unique_keys = false})["a"], 2);
  EXPECT_EQ(parse_ordered_json(R"({"a": 1, "b": 0, "a": 2})", "", {.unique_keys = false}).dump(), R"({"a":2,"b":0})");
}

}  // namespace
}  // namespace ingot
