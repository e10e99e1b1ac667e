// The formats of JSON Schema as regular expressions.
#include <map>
#include <string>

#include "core/printable.h"
#include "grammar/regex.h"
#include "grammar/schema/compiler.h"

namespace ingot::grammar {
namespace {

// Those whose rules no regular expression has.
constexpr std::string_view kDeclinedFormats[] = {"regex", "idn-hostname"};

std::string group(const std::string& pattern) { return "(?:" + pattern + ")"; }

std::string date() {
  const std::string leap_year = R"((?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00))";
  return group(R"(\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|)"
               R"(02-(?:0[1-9]|1\d|2[0-8]))|)" +
               leap_year + "-02-29");
}

// A leap second is the last one of a day in UTC. Beside an offset, minutes decide minutes; hours, with the carry that
// the offset's minutes tell, decide hours.
std::string leap_second() {
  std::string minutes, hours;
  for (const int sign : {1, -1}) {
    const char* const mark = sign > 0 ? "[+]" : "-";
    for (int m = 0; m < 60; ++m)
      minutes += fmt::format(R"(|\d\d:{:02}:[^+-]*{}\d\d:{:02})", (59 + sign * m + 60) % 60, mark, m);
    for (int h = 0; h < 24; ++h)
      for (const bool carry : {false, true}) {
        const int hour = 23 + sign * h + (carry && sign > 0 ? 1 : 0) + 24;
        // 23:59 and a minute more are the next hour; 59 minutes less are not the hour before.
        if (carry && sign < 0) continue;
        hours += fmt::format(R"(|{:02}:\d\d:[^+-]*{}{:02}:{})", hour % 24, mark, h,
                             sign < 0 ? R"(\d\d)"
                             : carry  ? R"((?!00)\d\d)"
                                      : "00");
      }
  }
  const std::string offset = R"([+-](?:[01]\d|2[0-3]):[0-5]\d)";
  return R"((?:23:59:60(?:\.\d+)?[zZ]|(?=(?:)" + minutes.substr(1) + R"()$)(?=(?:)" + hours.substr(1) +
         R"()$)[0-2]\d:[0-5]\d:60(?:\.\d+)?)" + offset + ")";
}

std::string time() {
  return group(R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)|)" + leap_second());
}

std::string duration() {
  const std::string time = R"(T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))";
  const std::string days = R"((?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D))";
  return R"(P(?:\d+W|)" + time + "|" + days + group(time) + "?)";
}

std::string ipv4() {
  const std::string part = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  return group(part + R"((?:\.)" + part + "){3}");
}

std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}", h_ = group(h + ":"), _h = group(":" + h),
                    last = group(h + ":" + h + "|" + ipv4());
  std::string out = h_ + "{6}" + last;
  // :: stands for what is missing: n groups before it, the rest after it.
  const std::string before[] = {"", h, h + _h + "{0,1}", h + _h + "{0,2}", h + _h + "{0,3}", h + _h + "{0,4}"};
  const std::string after[] = {h_ + "{5}" + last, h_ + "{4}" + last, h_ + "{3}" + last,
                               h_ + "{2}" + last, h_ + last,         last};
  out += "|::" + after[0];
  for (size_t i = 1; i < 6; ++i) out += "|" + group(before[i]) + "?::" + after[i];
  out += "|" + group(h + _h + "{0,5}") + "?::" + h + "|" + group(h + _h + "{0,6}") + "?::";
  return group(out);
}

std::string label() { return "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"; }
std::string hostname() { return R"((?=.{1,253}$))" + label() + R"((?:\.)" + label() + ")*"; }

std::string email(const std::string& more) {
  const std::string atom = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~" + more + "-]+";
  const std::string quoted = R"("(?:[ !#-\[\]-~)" + more + R"(]|\\[ -~])*")";
  const std::string host_label =
      more.empty() ? label() : "[0-9A-Za-z" + more + "](?:[0-9A-Za-z" + more + "-]{0,61}[0-9A-Za-z" + more + "])?";
  return group(atom + R"((?:\.)" + atom + ")*|" + quoted) + "@" +
         group(host_label + R"((?:\.)" + host_label + R"()*|\[(?:)" + ipv4() + "|IPv6:" + ipv6() + R"()\])");
}

// A URI or, with `more` letters, an IRI; absolute or relative to something.
std::string uri(const std::string& more, bool reference) {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string name = "0-9A-Za-z._~!$&'()*+,;=" + more;  // a class
  const std::string pchar = group("[" + name + ":@-]|" + percent);
  const std::string segments = "(?:/" + pchar + "*)*";
  const std::string host =
      group(R"(\[(?:)" + ipv6() + R"(|v[0-9A-Fa-f]+\.[)" + name + R"(:-]+)\]|(?:[)" + name + "-]|" + percent + ")*");
  const std::string authority = "//(?:(?:[" + name + ":-]|" + percent + ")*@)?" + host + R"((?::\d*)?)" + segments;
  const std::string absolute = "/(?:" + pchar + "+" + segments + ")?";
  const std::string rootless = pchar + "+" + segments;
  const std::string tail = group(R"(\?(?:)" + pchar + "|[/?" + (more.empty() ? "" : R"(\uE000-\uF8FF)") + "])*") + "?" +
                           group("#(?:" + pchar + "|[/?])*") + "?";
  const std::string full = "[A-Za-z][0-9A-Za-z+.-]*:" + group(authority + "|" + absolute + "|" + rootless + "|") + tail;
  if (!reference) return full;
  const std::string no_colon = group("[" + name + "@-]|" + percent) + "+" + segments;
  return group(full + "|" + group(authority + "|" + absolute + "|" + no_colon + "|") + tail);
}

const std::map<std::string, std::string, std::less<>>& formats() {
  static const auto* const made = [] {
    const std::string wide = R"(\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{DFFFF})";
    const std::string pointer = "(?:/(?:[^/~]|~[01])*)*";
    const std::string variable =
        R"((?:[0-9A-Za-z_]|%[0-9A-Fa-f]{2})(?:\.?(?:[0-9A-Za-z_]|%[0-9A-Fa-f]{2}))*(?::[1-9]\d{0,3}|\*)?)";
    return new std::map<std::string, std::string, std::less<>>{
        {"date", date()},
        {"time", time()},
        {"date-time", date() + "[tT]" + time()},
        {"duration", duration()},
        {"email", email("")},
        {"idn-email", email(R"(\u0080-\u{10FFFF})")},
        {"hostname", hostname()},
        {"ipv4", ipv4()},
        {"ipv6", ipv6()},
        {"uri", uri("", false)},
        {"uri-reference", uri("", true)},
        {"iri", uri(wide, false)},
        {"iri-reference", uri(wide, true)},
        {"uri-template",
         R"((?:[^\x00- "'%<>\\^`{|}]|%[0-9A-Fa-f]{2}|\{[+#./;?&=,!@|]?)" + variable + "(?:," + variable + R"()*\})*)"},
        {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
        {"json-pointer", pointer},
        {"relative-json-pointer", R"((?:0|[1-9]\d*)(?:#|)" + pointer + ")"},
    };
  }();
  return *made;
}

}  // namespace

std::optional<ExprId> SchemaCompiler::format_expr(std::string_view name, const SchemaNode& node) {
  for (const std::string_view declined : kDeclinedFormats)
    if (name == declined) bad_keyword(node, "format", "is " + std::string(name) + ", which is not supported");
  const auto found = formats().find(name);
  if (found == formats().end()) return std::nullopt;  // a word of its own that asserts nothing
  return parse_regex(program.json, found->second, RegexMatch::whole, node.place + "/format");
}

}  // namespace ingot::grammar
