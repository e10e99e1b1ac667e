#include "formats/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/test_files.h"

namespace ingot {
namespace {

TEST(Json, ReadsTypedValues) {
  const nlohmann::json json = parse_json(
      R"({"i": 7, "whole": 8192.0, "d": 0.5, "b": true, "s": "x", "n": null, "one": 3, "many": [3, 4],
          "names": ["a", "b"], "o": {"k": 1}})",
      "c.json");
  const JsonView view(json, "c.json");
  EXPECT_EQ(view.need_int("i"), 7);
  EXPECT_EQ(view.need_int("whole"), 8192);
  EXPECT_EQ(view.need_double("i"), 7.0);
  EXPECT_EQ(view.need_double("d"), 0.5);
  EXPECT_TRUE(view.need_bool("b"));
  EXPECT_EQ(view.need_string("s"), "x");
  EXPECT_FALSE(view.has("n"));
  EXPECT_FALSE(view.has("absent"));
  EXPECT_EQ(view.find_int("n"), std::nullopt);
  EXPECT_EQ(view.find_ints("one"), std::vector<int64_t>{3});
  EXPECT_EQ(view.find_ints("many"), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(view.find_strings("names"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(view.need_object("o").need_int("k"), 1);
}

TEST(Json, ErrorsNameFileAndKey) {
  const nlohmann::json json =
      parse_json(R"({"s": "x", "d": 1.5, "big": 18446744073709551615, "o": {"s": "x"}, "l": [1, "x"]})", "c.json");
  const JsonView view(json, "c.json");
  const auto bad = ErrorKind::bad_file;
  expect_error(bad, "c.json: s must be an integer, got string", [&] { view.need_int("s"); });
  expect_error(bad, "c.json: d must be an integer, got float", [&] { view.need_int("d"); });
  expect_error(bad, "c.json: big must be an integer", [&] { view.need_int("big"); });
  expect_error(bad, "c.json: s must be a number, got string", [&] { view.need_double("s"); });
  expect_error(bad, "c.json: d must be true or false, got float", [&] { view.need_bool("d"); });
  expect_error(bad, "c.json: d must be a string, got float", [&] { view.need_string("d"); });
  expect_error(bad, "c.json: s must be an object, got string", [&] { view.need_object("s"); });
  expect_error(bad, "c.json: o.s must be an integer, got string", [&] { view.need_object("o").need_int("s"); });
  expect_error(bad, "c.json: o.t is missing", [&] { view.need_object("o").need_int("t"); });
  expect_error(bad, "c.json: l must be a list of integers only, got string", [&] { view.find_ints("l"); });
  expect_error(bad, "c.json: absent is missing", [&] { view.need_string("absent"); });
  const nlohmann::json list = parse_json("[]", "c.json");
  expect_error(bad, "c.json: must be a JSON object, got array", [&] { JsonView(list, "c.json"); });
}

TEST(Json, ReadsFiles) {
  const TempDir dir;
  write_file(dir / "a.json", R"({"k": 5})");
  EXPECT_EQ(read_json_file(dir / "a.json")["k"], 5);
  expect_error(ErrorKind::io, "b.json: no such file", [&] { (void)read_json_file(dir / "b.json"); });
}

}  // namespace
}  // namespace ingot
