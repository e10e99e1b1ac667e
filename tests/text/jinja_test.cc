#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "soak.h"
#include "text/jinja/template.h"

#include <nlohmann/json.hpp>

namespace ingot::jinja {
namespace {

using Json = nlohmann::ordered_json;
using Variables = std::vector<std::pair<std::string_view, Value>>;

// The time that scripts/make_template_goldens.py uses.
std::tm golden_time() {
  std::tm t{};
  t.tm_year = 2025 - 1900;
  t.tm_mon = 2;
  t.tm_mday = 9;
  t.tm_hour = 14;
  t.tm_min = 5;
  t.tm_sec = 6;
  t.tm_wday = 0;
  t.tm_yday = 67;
  return t;
}

std::string render(std::string_view source, Variables variables = {}, RenderOptions options = {}) {
  options.now = golden_time();
  return Template(source).render(std::move(variables), options);
}

// The error's text, or "no error: " and what was rendered.
std::string error_of(std::string_view source, ErrorKind kind, const RenderOptions& options = {}) {
  try {
    return "no error: " + render(source, {}, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
}

TEST(Jinja, IntegersAreNotReadAsFloats) {
  EXPECT_EQ(render("{{ '9007199254740993'|int }} {{ '010'|int }} {{ '+7.9'|int }}"), "9007199254740993 10 7");
}

// What a branch may set is the caller's variable as long as it has not.
TEST(Jinja, ABranchNotTakenHidesNothing) {
  Variables variables;
  variables.emplace_back("x", Value(1));
  const char* const source =
      "{% for taken in [true, false] %}{% if taken %}a{% else %}{% set x = 2 %}{% endif %}{{ x }} {% endfor %}";
  EXPECT_EQ(render(source, variables), "a1 2 ");
}

TEST(Jinja, SnippetsEqualPython) {
  std::ifstream file(INGOT_FIXTURES "/templates/snippets.json");
  const Json golden = Json::parse(file);
  Variables variables;
  for (const auto& item : golden["variables"].get_ref<const Json::object_t&>())
    variables.emplace_back(item.first, Value::from_json(item.second));
  ASSERT_GE(golden["cases"].size(), 800u);
  for (const auto& c : golden["cases"]) {
    const std::string source = c["source"];
    SCOPED_TRACE(source);
    try {
      const std::string text = render(source, variables);
      if (c.contains("text")) {
        EXPECT_EQ(text, c["text"].get<std::string>());
      } else {
        ADD_FAILURE() << "expected " << c.dump() << "\n but got: " << text;
      }
    } catch (const Error& e) {
      if (c.contains("text")) {
        ADD_FAILURE() << "expected " << c["text"] << "\n but got an error: " << e.what();
      } else if (c.contains("message")) {
        EXPECT_NE(std::string(e.what()).find(c["message"].get<std::string>()), std::string::npos)
            << "expected " << c["message"] << "\n but got: " << e.what();
      }
    }
  }
}

TEST(Jinja, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(error_of("a\nb\n{{ 'x'|nope }}", ErrorKind::bad_call),
            "chat template, line 3, at `'x'|nope }}`: No filter named 'nope'.");
  EXPECT_EQ(error_of("a\n{{ raise_exception('no ' ~ 1) }}", ErrorKind::bad_call),
            "chat template, line 2, at `raise_exception('no ' ~ 1) }}`: no 1");
  EXPECT_EQ(error_of("{% if x.y.z %}{% endif %}", ErrorKind::bad_call),
            "chat template, line 1, at `x.y.z %}{% endif %}`: 'x' is undefined");
  EXPECT_EQ(error_of("{% include 'x' %}", ErrorKind::bad_file),
            "chat template, line 1, at `include 'x' %}`: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(error_of("{% set = 1 %}", ErrorKind::bad_file),
            "chat template, line 1, at `= 1 %}`: expected token 'name', got '='");
  EXPECT_EQ(error_of("{% for in [1] %}{% endfor %}", ErrorKind::bad_file),
            "chat template, line 1, at `in [1] %}{% endfor %}`: Expected an expression, got 'in'");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}", ErrorKind::bad_call),
            "chat template, line 1, at `9223372036854775807 + 1 }}`: 9223372036854775807 + 1 is over 63 bits");
}

TEST(Jinja, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> kWhenReached[] = {
      {"{{ 'x'.encode() }}", "str.encode is not supported"},
      {"{{ xs.index(1) }}", "list.index is not supported"},
      {"{{ 1|pprint }}", "the filter 'pprint' is not supported"},
      {"{{ ['b']|map('e')|list }}", "the filter 'e' is not supported"},
      {"{{ 'x' is upper }}", "the test 'upper' is not supported"},
      {"{{ cycler(1, 2).next() }}", "cycler() is not supported"},
      {"{% for x in [1] %}{{ loop.changed(x) }}{% endfor %}", "loop.changed is not supported"},
      {"{{ '%5.1e' % 2 }}", "the format character 'e' is not supported"},
      {"{{ '{:,}'.format(1000) }}", "the format code ',' for a number is not supported"},
      {"{{ '{:,.2f}'.format(1) }}", "the format specification ',.2f' is not supported"},
      {"{{ '{0.a}'.format(1) }}", "the replacement field '0.a' is not supported"},
      {"{{ '7'|int(base=8) }}", "int() with a base other than 10 is not supported"},
      {"{{ xs|sort(attribute='a,b') }}", "sort() by several attributes is not supported"},
      {"{{ ('<'|safe) % 1 }}", "% on a string out of the filter 'safe' is not supported"},
      {"{{ ('<'|safe).join('<') }}", "join of a string out of the filter 'safe' is not supported"},
      {"{{ range(3) }}", "the text of a range is not supported: make it a list first"},
      {"{{ namespace() }}", "the text of a TemplateNamespace is not supported"},
  };
  const std::pair<const char*, const char*> kWhenParsed[] = {
      {"{% include 'x' %}", "the tag 'include' is not supported in chat templates"},
      {"{% print 1 %}", "the tag 'print' is not supported in chat templates"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops are not supported"},
      {"{{ 2 ** 3 }}", "the operator ** is not supported"},
      {"{{ x[1, 2] }}", "several indices are not supported"},
      {"{{ 0x1f }}", "only decimal numbers without underscores are supported"},
      {"{{ '\\101' }}", "this escape is not supported"},
  };
  const Variables variables = {{"xs", Value::list({1, 2})}};
  for (const auto& [source, message] : kWhenReached) {
    SCOPED_TRACE(source);
    try {
      ADD_FAILURE() << "rendered " << render(source, variables);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::declined);
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
    EXPECT_EQ(render(std::string("{% if false %}") + source + "{% endif %}ok"), "ok");
  }
  for (const auto& [source, message] : kWhenParsed)
    EXPECT_NE(error_of(source, ErrorKind::bad_file).find(message), std::string::npos) << source;
}

TEST(Jinja, HostileTemplatesEndWithAnError) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{% for a in range(99999) %}{% for b in range(999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
       "bytes of text"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recurses"},
      {"{% macro m(x) %}{% for i in [1] %}{{ caller(x) }}{% endfor %}{% endmacro %}"
       "{% macro n(x) %}{% call(y) m(x) %}{{ n(y) }}{% endcall %}{% endmacro %}{{ n(1) }}",
       "recurses"},
      {"{{ 'x' * 1000000000 }}", "repeating"},
      {"{{ [1] * 1000000000 }}", "repeating"},
      {"{{ ('x' * 4000000)|list }}", "grew over"},
      {"{% set a = 'x' * 4000000 %}{{ [a, a, a, a, a, a, a, a, a] }}", "grew over"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
       "grew over"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}", "nest deeper"},
      {"{{ '%1000000000d' % 1 }}", "width"},
      {"{{ '{:1000000000}'.format(1) }}", "width"},
      {"{{ 'x'|indent(1000000000) }}", "width"},
      {"{% set a = 'ab' * 1000000 %}{% for i in range(99999) %}{% set b = a.replace('a', 'c') %}{% endfor %}", "steps"},
      {"{% set a = 'ab' * 1000000 %}{% for i in range(99999) %}{% set b = a|upper %}{% endfor %}", "steps"},
  };
  RenderOptions options;  // smaller than the defaults, for the tests' sake
  options.limits.max_steps = test::kSanitized ? 200'000 : 300'000;
  options.limits.max_output = 100'000;
  options.limits.max_time = std::chrono::minutes(10);  // a sanitizer on a busy machine is slow; the steps end it
  for (const auto& [source, message] : kCases) {
    SCOPED_TRACE(source);
    try {
      const std::string text = render(source, {}, options);
      ADD_FAILURE() << "rendered " << text.size() << " bytes";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::bad_file);
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  }
}

TEST(Jinja, DeepNestingIsRefusedByTheParser) {
  const int times = test::kSanitized ? 10'000 : 100'000;
  const auto repeat = [](std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  for (const std::string& source :
       {"{{ " + repeat("(", times), "{{ " + repeat("[", times), "{{ " + repeat("-", times) + "1 }}",
        "{{ " + repeat("not ", times) + "1 }}", "{{ 1" + repeat(" + 1", times) + " }}",
        "{{ 1" + repeat("|abs", times) + " }}", "{{ x" + repeat(".x", times) + " }}",
        "{{ 1" + repeat(" if 1 else 1", times) + " }}", repeat("{% if 1 %}", times),
        repeat("{% for x in y %}", times)}) {
    const std::string message = error_of(source, ErrorKind::bad_file);
    EXPECT_NE(message.find("deep"), std::string::npos) << message;
  }
}

TEST(Jinja, CyclesAreFreed) {
  // What the leak sanitizer would find.
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = [ns] %}{% macro m() %}{% endmacro %}{% set ns.m = m %}"
                   "{% for x in [1, 2] %}{% set ns.loop = [loop] %}{{ loop.index }}{% endfor %}"),
            "12");
}

TEST(Jinja, InvalidUtf8IsCopiedThrough) {
  EXPECT_EQ(render("{{ 'a\xff\xc3'|upper }}{{ 'a\xff\xc3'|length }}\xe2\x82"),
            "A\xff\xc3"
            "3\xe2\x82");
}

TEST(Jinja, LimitsCanBeSet) {
  RenderOptions options;
  options.limits.max_memory = 1 << 20;
  const char* hoard =
      "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = ns.l + ['x' * 99999] %}{% endfor %}";
  EXPECT_NE(error_of(hoard, ErrorKind::bad_file, options).find("1 MiB of memory"), std::string::npos);
  options.limits.max_output = 10;
  EXPECT_EQ(render("0123456789", {}, options), "0123456789");
  EXPECT_NE(error_of("0123456789x", ErrorKind::bad_file, options).find("10 bytes"), std::string::npos);
  RenderOptions short_time;
  short_time.limits.max_time = std::chrono::milliseconds(0);
  const char* loop = "{% for i in range(9999) %}{% endfor %}";
  EXPECT_NE(error_of(loop, ErrorKind::bad_file, short_time).find("0 ms"), std::string::npos);
  options.limits.max_steps = 5;
  EXPECT_NE(error_of("{{ 1 }}{{ 1 }}{{ 1 }}{{ 1 }}", ErrorKind::bad_file, options).find("5 steps"), std::string::npos);
}

}  // namespace
}  // namespace ingot::jinja
