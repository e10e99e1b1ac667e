#include "grammar/schema/schema.h"

#include "helpers.h"
#include "soak.h"

namespace ingot::grammar {
namespace {

using test::accepts;
using test::schema;

struct SchemaCase {
  const char* source;
  std::vector<std::string> yes, no;
};

void check(const std::vector<SchemaCase>& cases, const Options& options = {}) {
  for (const SchemaCase& each : cases) {
    const auto grammar = schema(each.source, options);
    for (const std::string& text : each.yes) EXPECT_TRUE(accepts(grammar, text)) << each.source << " on " << text;
    for (const std::string& text : each.no) EXPECT_FALSE(accepts(grammar, text)) << each.source << " on " << text;
  }
}

TEST(Schema, AnyJson) {
  check(
      {{"{}",
        {"1", "-0.5e+3", "\"a\\u00e9\\/\\n\"", "null", "true", "[]", "[1,[2]]", "{}", R"({"a":{"b":[]}, "" : null})"},
        {"", " 1", "1 ", "01", "tru", "[1,]", "{,}", "{\"a\"}", "\"\\x\"", "\"\\ud800\"", "\"\n\"", "'a'", "\"\xFF\""}},
       {"true", {"1"}, {""}}});
}

TEST(Schema, Objects) {
  check({
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]})",
       {R"({"a":1})", R"({"b":"x","a":2})", R"({"z":[],"a":2,"b":"","y":1})"},
       {"{}", R"({"b":"x"})", R"({"a":"1"})", R"({"a":1,"b":2})", R"({"a":1,"a":2})", "[]"}},
      {R"({"type":"object","properties":{"a":{},"b":false},"additionalProperties":false})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})", R"({"c":1})"}},
      {R"({"type":"object","properties":{"ab":{"type":"null"}},"patternProperties":{"^a":{"type":["null","string"]},"b$":{"type":["null","integer"]}},"additionalProperties":{"type":"boolean"}})",
       {R"({"ab":null})", R"({"ax":"s","xb":1,"axb":null,"c":true})"},
       {R"({"ab":"s"})", R"({"axb":1})", R"({"c":1})", R"({"xb":"s"})"}},
      {R"({"type":"object","minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2,"required":["c"],"maxProperties":2})",
       {R"({"a":1,"c":2})", R"({"c":1,"b":2})"},
       {R"({"c":1})", R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":2}})",
       {"{}", R"({"ab":1})"},
       {R"({"A":1})", R"({"abc":1})"}},
      {R"({"type":"object","dependentRequired":{"a":["b"],"b":["c"]}})",
       {"{}", R"({"c":1})", R"({"a":1,"b":2,"c":3})", R"({"c":1,"b":1})", R"({"x":1})"},
       {R"({"a":1})", R"({"a":1,"b":1})", R"({"b":1})"}},
      {R"({"type":"object","dependentSchemas":{"a":{"properties":{"b":{"type":"integer"}},"required":["b"]}}})",
       {"{}", R"({"b":"x"})", R"({"a":1,"b":2})"},
       {R"({"a":1})", R"({"a":1,"b":"x"})"}},
      {R"({"properties":{"\u00e9\"":{"type":"null"}},"required":["\u00e9\""]})",
       {"{\"\xC3\xA9\\\"\":null}", R"({"\u00e9\"":null})", "1"},
       {R"({"e":1})"}},
  });
}

TEST(Schema, StrictMeansTheOrderOfTheSchema) {
  check(
      {{R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"integer"},"c":{"type":"number"}},"required":["b","c"]})",
        {R"({"b":1,"c":2})", R"({"b":1,"a":3,"c":2.5})", R"({"b":1,"c":2,"x":1})"},
        {R"({"a":1,"b":2,"c":3})", R"({"b":1,"x":1,"c":2})", R"({"b":1,"a":1})", R"({"b":1.0,"c":2})",
         R"({"b":1,"c":2e3})"}}},
      {.strict = true});
}

TEST(Schema, Arrays) {
  check({
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1,2,3]"},
       {"[]", "[1,2,3,4]", "[\"a\"]"}},
      {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})",
       {"[]", "[\"a\"]", "[\"a\",1]"},
       {"[1]", "[\"a\",1,2]"}},
      {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"}})",
       {"[\"a\",null,null]"},
       {"[null]", "[\"a\",1]"}},
      {R"({"type":"array","items":[{"type":"string"}],"additionalItems":false})", {"[]", "[\"a\"]"}, {"[\"a\",1]"}},
      {R"({"type":"array","contains":{"type":"integer"}})", {"[1]", "[\"a\",2,null]"}, {"[]", "[\"a\"]"}},
      {R"({"type":"array","contains":{"type":"integer"},"minContains":2,"maxContains":3})",
       {"[1,2]", "[1,\"a\",2,3]"},
       {"[1]", "[1,2,3,4]"}},
      {R"({"type":"array","contains":{"const":1},"maxItems":1})", {"[1]"}, {"[]", "[2]", "[1,1]"}},
      {R"({"allOf":[{"contains":{"const":1}},{"contains":{"const":2}}],"type":"array"})",
       {"[1,2]", "[2,0,1]"},
       {"[1]", "[2,2]"}},
      {R"({"type":"array","uniqueItems":true,"maxItems":1})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b",1,1.0,null]},"minItems":1})",
       {"[\"b\"]", "[1,\"b\",null,\"a\"]"},
       {"[]", "[1,1.0]", "[\"a\",\"a\"]", "[\"c\"]"}},
      {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b",1],"type":"string"}})",
       {"[]", "[\"b\",\"a\"]"},
       {"[1]", "[\"b\",\"b\"]"}},
      {R"({"type":"array","items":{"type":"array","items":{"type":"boolean"}}})", {"[[],[true,false]]"}, {"[true]"}},
  });
}

TEST(Schema, StringsAndFormats) {
  check({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"\xF0\x9F\x92\xA9\xF0\x9F\x92\xA9\"", R"("\ud83d\udca9\n\"")"},
       {"\"a\"", "\"abcd\"", "1"}},
      {R"({"type":"string","pattern":"b"})", {"\"abc\""}, {"\"ac\""}},
      {R"({"pattern":"^a+$","allOf":[{"pattern":"^(aa)*$"}],"minLength":3,"type":"string"})",
       {"\"aaaa\""},
       {"\"aa\"", "\"aaa\"", "\"aaaaa\""}},
      {R"({"format":"date","type":"string"})",
       {"\"2024-02-29\"", "\"1999-12-31\""},
       {"\"2023-02-29\"", "\"2024-13-01\"", "\"2024-04-31\""}},
      {R"({"format":"date-time","type":"string"})",
       {"\"2024-01-01T00:00:00Z\"", "\"1998-12-31T15:59:60.123-08:00\""},
       {"\"2024-01-01\"", "\"1998-12-31T15:58:60-08:00\""}},
      {R"({"format":"ipv6","type":"string"})",
       {"\"::\"", "\"1::2:3\"", "\"::ffff:1.2.3.4\""},
       {"\":\"", "\"1:2\"", "\"1::2::3\""}},
      {R"({"format":"uuid","type":"string"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
      {R"({"format":"email","type":"string"})", {"\"a.b@c.de\""}, {"\"a\"", "\".a@c.de\""}},
      {R"({"format":"a word of its own","type":"string"})", {"\"x\""}, {"1"}},
  });
  check({{R"({"format":"date","type":"string"})", {"\"x\""}, {}}}, {.assert_formats = false});
}

TEST(Schema, Numbers) {
  check({
      {R"({"type":"integer"})", {"0", "-12", "1.0", "12345678901234567890123"}, {"1.5", "\"1\"", "01"}},
      {R"({"type":"number","minimum":-1.5,"exclusiveMaximum":10})",
       {"-1.5", "9.999", "0", "-0.1"},
       {"-1.51", "10", "10.0", "1e1"}},
      {R"({"type":"integer","minimum":5,"maximum":5})", {"5"}, {"4", "6", "55"}},
      {R"({"type":"integer","multipleOf":7,"minimum":10})", {"14", "700"}, {"7", "15"}},
      {R"({"type":"number","multipleOf":0.01})", {"0.01", "3", "3.10"}, {"0.001"}},
      {R"({"type":"integer","multipleOf":0.75})", {"3", "0", "-6"}, {"1", "2"}},
      {R"({"minimum":1,"exclusiveMinimum":true,"type":"number"})", {"1.1"}, {"1"}},
  });
}

TEST(Schema, Values) {
  check({
      {R"({"enum":[1,"a",null,true,[1,{"x":2}],{"k":"v"}]})",
       {"1", "1.0", "\"a\"", "null", "true", R"([1, {"x": 2}])", R"({"k":"v"})"},
       {"2", "false", "[1]", "{}", R"({"k":"v","l":1})"}},
      {R"({"const":"a\nb"})", {R"("a\nb")"}, {"\"ab\""}},
      {R"({"const":0})", {"0", "0.0", "-0"}, {"1"}},
      {R"({"const":1.5})", {"1.5", "1.50"}, {"1.51", "15"}},
      {R"({"type":["string","null"],"const":null})", {"null"}, {"\"\""}},
  });
}

TEST(Schema, Combinations) {
  check({
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", "\"a\""}, {"\"ab\"", "null"}},
      {R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5", "\"a\""}, {"3", "1.5"}},
      {R"({"oneOf":[{"properties":{"t":{"const":"a"},"x":{"type":"integer"}}},{"properties":{"t":{"const":"b"}}}],"type":"object","required":["t"]})",
       {R"({"t":"a","x":1})", R"({"x":"s","t":"b"})"},
       {R"({"t":"a","x":"s"})", R"({"t":"c"})"}},
      {R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1,"c":2})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":3},"b":{"type":"null"}},"required":["a"]}],"type":"object"})",
       {R"({"a":3,"b":null})"},
       {R"({"a":2})", R"({"a":"x"})", R"({"b":null})"}},
      {R"({"not":{"type":["object","array","string"]}})", {"1", "null", "true"}, {"\"a\"", "{}", "[]"}},
      {R"({"type":"string","not":{"enum":["a","b"]}})", {"\"c\"", "\"ab\"", "\"\""}, {"\"a\"", "\"b\""}},
      {R"({"type":"array","not":{"items":{"type":"integer"}}})", {"[\"a\"]", "[1,null]"}, {"[]", "[1]"}},
      {R"({"not":{"properties":{"a":{"type":"integer"}},"required":["a"]},"type":"object"})",
       {"{}", R"({"a":"x"})", R"({"b":1})"},
       {R"({"a":1})"}},
      {R"({"not":{"additionalProperties":{"type":"integer"}},"type":"object"})",
       {R"({"a":"x"})", R"({"a":1,"b":null})"},
       {"{}", R"({"a":1})"}},
      {R"({"type":"object","properties":{"k":{"enum":["a","b"]}},"required":["k"],"if":{"properties":{"k":{"const":"a"}}},"then":{"required":["x"]},"else":{"properties":{"x":false}}})",
       {R"({"k":"a","x":1})", R"({"k":"b"})"},
       {R"({"k":"a"})", R"({"k":"b","x":1})"}},
      {R"({"type":"object","allOf":[{"properties":{"a":{}}}],"properties":{"b":{}},"unevaluatedProperties":false})",
       {R"({"a":1,"b":2})"},
       {R"({"c":1})"}},
      {R"({"type":"object","anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}],"unevaluatedProperties":false})",
       {R"({"a":1})", R"({"b":1})", R"({"b":2,"a":1})"},
       {R"({"a":1,"c":1})", R"({"b":1,"a":"x"})", "{}"}},
      {R"({"type":"array","prefixItems":[{}],"unevaluatedItems":{"type":"null"}})", {"[1,null]"}, {"[1,2]"}},
  });
}

TEST(Schema, References) {
  check({
      {R"({"$ref":"#/$defs/list","$defs":{"list":{"type":["array","null"],"items":{"$ref":"#/$defs/list"}}}})",
       {"null", "[[],[null,[[]]]]"},
       {"1", "[1]"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},"required":["v"],"additionalProperties":false})",
       {R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"v":1,"next":{}})"}},
      {R"({"$ref":"#/$defs/a~1b%25","minimum":3,"$defs":{"a/b%":{"type":"integer"}}})", {"3"}, {"2", "3.5"}},
      {R"({"$ref":"#name","$defs":{"x":{"$anchor":"name","type":"null"}}})", {"null"}, {"1"}},
      {R"({"$id":"http://x.y/root","$ref":"item","$defs":{"x":{"$id":"item","type":"null"}}})", {"null"}, {"1"}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","type":"string","definitions":{"a":{"type":"null"}}})",
       {"null"},
       {"\"\""}},
      {R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}},"required":["l","r"],"additionalProperties":false}]})",
       {R"({"r":null,"l":{"l":null,"r":null}})"},
       {R"({"l":null})"}},
  });
}

TEST(Schema, WhiteSpaceHasABound) {
  const auto grammar = schema(R"({"type":"object","properties":{"a":{}}})", {.max_white_space = 3});
  EXPECT_TRUE(accepts(grammar, "{ \"a\" :\n\t 1 ,\r\n\"b\":[ 1 , 2 ] }"));
  EXPECT_FALSE(accepts(grammar, "{    \"a\":1}"));
  const auto compact = schema("{}", {.max_white_space = 0});
  EXPECT_TRUE(accepts(compact, R"({"a":[1,2]})"));
  EXPECT_FALSE(accepts(compact, R"({"a": 1})"));
}

TEST(Schema, SaysWhatIsNotSupportedAndWhere) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"properties":{"a":{"type":"array","uniqueItems":true}}})", "#/properties/a/uniqueItems is not supported"},
      {R"({"items":{"$dynamicRef":"#x"}})", "#/items/$dynamicRef is not supported"},
      {R"({"$ref":"http://elsewhere/x"})", "#/$ref refers to http://elsewhere/x, which is not in this schema"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref refers to #/$defs/none"},
      {R"({"properties":{"a/b":{"pattern":"("}}})", "#/properties/a~1b/pattern (: "},
      {R"({"format":"regex"})", "#/format is regex"},
      {R"({"type":"strin"})", "#/type is strin, which is no type"},
      {R"({"minLength":-1})", "#/minLength must be a whole number"},
      {R"({"maximum":"x"})", "#/maximum must be a number"},
      {R"({"multipleOf":0})", "#/multipleOf must be more than 0"},
      {R"({"anyOf":[]})", "#/anyOf must be a list"},
      {R"({"properties":[]})", "#/properties must be an object"},
      {R"({"required":[1]})", "#/required must be a list of names"},
      {R"({"items":3})", "#/items must be a schema"},
      {R"({"type":"object","minProperties":2})", "#/minProperties of more than 1 is not supported"},
      {"{", "# is not valid JSON"},
      {"[]", "# must be a schema"},
  };
  for (const auto& [source, reason] : cases) {
    const std::string error = test::refusal([&] { schema(source); });
    EXPECT_TRUE(error.starts_with(reason)) << source << ": " << error;
  }
  try {
    schema(R"({"properties":{"a":{"pattern":"("}}})");
  } catch (const Error& error) {
    EXPECT_EQ(error.param(), "#/properties/a/pattern");
  }
}

TEST(Schema, UnknownWordsAreAccepted) {
  check(
      {{R"({"type":"null","title":"t","description":1,"default":[],"examples":3,"x-mine":{"type":"string"},"$comment":"c","readOnly":true,"contentEncoding":"base64","deprecated":true})",
        {"null"},
        {"1"}}});
}

TEST(Schema, WhatNothingSatisfiesIsRefused) {
  for (const char* source :
       {"false", R"({"type":"string","enum":[1]})", R"({"minimum":3,"maximum":2,"type":"number"})",
        R"({"type":"string","minLength":3,"maxLength":2})", R"({"type":"string","pattern":"^a$","minLength":2})",
        R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})",
        R"({"type":"array","minItems":1,"items":false})",
        R"({"type":"object","required":["a"],"properties":{"a":false}})",
        R"({"type":"object","required":["a"],"additionalProperties":false})",
        R"({"type":"object","properties":{"n":{"$ref":"#"}},"required":["n"]})",
        R"({"type":"object","required":["a","b"],"maxProperties":1})",
        R"({"allOf":[{"type":"string"},{"type":"number"}]})", R"({"not":{}})",
        R"({"type":"object","minProperties":3,"properties":{"a":{},"b":{}},"additionalProperties":false})",
        R"({"type":"array","contains":{"type":"string"},"items":{"type":"number"}})",
        R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2]},"minItems":3})"}) {
    const std::string error = test::refusal([&] { schema(source); });
    EXPECT_EQ(error, "# is satisfied by no value") << source;
  }
  EXPECT_EQ(test::refusal([] { schema(R"({"$ref":"#"})"); }), "# refers to itself without end");
  EXPECT_EQ(test::refusal([] {
              schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}}})");
            }),
            "#/$defs/a refers to itself without end");
}

TEST(Schema, ShortNumbersEnd) {
  const Options brief{.short_numbers = true};
  const std::string many(41, '7'), zeros(18, '0');
  const struct {
    const char* schema;
    std::vector<std::string> good, bad;
  } cases[] = {
      {R"({"type":"number"})", {"0", "-1.50", "10.00", many.substr(1)}, {"1e3", many, "1." + zeros}},
      {R"({"type":"integer"})", {"17", "-3"}, {"17.0", many}},
      {R"({"enum":[17,0.5]})", {"17", "0.5"}, {"17.0", "0.50"}},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":0.1})", {"0.1", "0.00000000000000001"}, {"0." + zeros + "1"}},
      {R"({"type":"number","minimum":1e45})", {"1" + std::string(45, '0')}, {"1"}},
  };
  for (const auto& each : cases) {
    const auto grammar = schema(each.schema, brief);
    for (const std::string& text : each.good) EXPECT_TRUE(accepts(grammar, text)) << each.schema << " " << text;
    for (const std::string& text : each.bad) EXPECT_FALSE(accepts(grammar, text)) << each.schema << " " << text;
  }
}

// A property that nothing satisfies may not be there; what depends on it neither.
TEST(Schema, LeadsIntoNoDeadEnd) {
  const std::vector<std::string> schemas = {
      R"({"type":"object","properties":{"a":{"$ref":"#/$defs/never"},"ab":{"type":"integer"}},"additionalProperties":false,"$defs":{"never":{"type":"object","required":["x"],"properties":{"x":{"$ref":"#/$defs/never"}}}}})",
      R"({"type":"object","dependentRequired":{"a":["b"]},"properties":{"a":{},"b":false,"c":{"type":"null"}},"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["b"],"maxProperties":2,"additionalProperties":false})",
      R"({"type":"string","pattern":"^(ab|cd)+$","minLength":5,"maxLength":7})",
      R"({"type":"string","pattern":"ab","maxLength":4,"not":{"pattern":"^a"}})",
      R"({"type":"integer","multipleOf":13,"minimum":100,"maximum":120})",
      R"({"type":"array","prefixItems":[{"type":"integer","maximum":9},{"const":2}],"items":{"const":7},"contains":{"const":7},"maxItems":3})",
      R"({"type":"array","contains":{"type":"integer","maximum":9,"minimum":0},"minContains":2,"maxContains":2,"items":{"type":["integer","null"],"maximum":20,"minimum":0},"minItems":3,"maxItems":4})",
      R"({"type":["array","null"],"anyOf":[{"minItems":3,"prefixItems":[{"const":1},false]},{"maxItems":0}]})",
      R"({"type":"number","exclusiveMinimum":0.3,"exclusiveMaximum":0.31,"multipleOf":0.005})",
      R"({"anyOf":[{"type":"array","items":{"const":"a"},"minItems":2,"maxItems":2},{"type":"array","items":{"const":"ab"},"maxItems":1}]})",
  };
  test::Random random{2};
  const int walks = ingot::test::soak() ? 500 : 30;
  for (const bool strict : {false, true})
    for (const std::string& source : schemas) {
      const auto grammar = schema(source, {.strict = strict, .max_white_space = 1});
      for (int walk = 0; walk < walks; ++walk) {
        Matcher matcher(grammar);
        for (int step = 0; step < 120; ++step) {
          std::vector<uint32_t> bits(test::byte_vocabulary()->mask_words());
          matcher.fill_mask(bits);
          std::vector<int32_t> allowed;
          for (int32_t id = 0; id < 256; ++id)
            if ((bits[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
          if (allowed.empty()) {
            ASSERT_TRUE(matcher.is_complete()) << source << " is stuck after " << matcher.text();
            break;
          }
          if (matcher.is_complete() && random.below(3) == 0) break;
          ASSERT_TRUE(matcher.accept(allowed[random.below(static_cast<uint32_t>(allowed.size()))]));
        }
      }
    }
}

TEST(Schema, CostsAreBounded) {
  Limits limits;
  limits.max_source_bytes = 1000;
  EXPECT_THROW(schema("{\"description\":\"" + std::string(2000, 'x') + "\"}", {.limits = limits}), OverBudget);
  std::string nested = "{}";
  for (int i = 0; i < 100; ++i) nested = R"({"items":)" + nested + "}";
  EXPECT_NO_THROW(schema(nested));
  for (int i = 0; i < 100; ++i) nested = R"({"items":)" + nested + "}";
  EXPECT_NE(test::refusal([&] { schema(nested); }).find("nested deeper"), std::string::npos);
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 5000; ++i) chain += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}},)", i, i + 1);
  EXPECT_THROW(schema(chain + R"("d5000":{}}})"), OverBudget);
  EXPECT_NE(test::refusal([] {
              schema(R"({"type":"array","contains":{"const":1},"minContains":100000})");
            }).find("so many items"),
            std::string::npos);
  // Each doubles what the one before means.
  std::string bomb = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 30; ++i)
    bomb += fmt::format(R"("d{}":{{"oneOf":[{{"$ref":"#/$defs/d{}"}},{{"required":["k{}"]}}]}},)", i, i + 1, i);
  bomb += R"("d30":{"type":"object"}}})";
  EXPECT_NE(test::refusal([&] { schema(bomb); }).find("oneOf"), std::string::npos);
  EXPECT_THROW(
      schema(
          R"({"type":"string","allOf":[{"pattern":"(a|b)*a.{40}$"},{"pattern":"(b|a)*b.{40}$"},{"not":{"pattern":"c.{30}d"}},{"pattern":"e.{20}f.{20}g"}],"minLength":300})",
          {.limits = {.max_bytes = size_t{8} << 20}}),
      OverBudget);
}

}  // namespace
}  // namespace ingot::grammar
