#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "text/dialects/dialect.h"

namespace ingot {
namespace {

constexpr const Dialect* kDialects[] = {
#define INGOT_DIALECT(name) &dialects::name,
#include "dialects_list.inc"  // made by the build
#undef INGOT_DIALECT
};

bool has_all(std::string_view source, const std::vector<std::string_view>& marks) {
  return std::all_of(marks.begin(), marks.end(),
                     [&](std::string_view mark) { return source.find(mark) != source.npos; });
}

}  // namespace

std::vector<std::string> dialect_names() {
  std::vector<std::string> names;
  for (const Dialect* dialect : kDialects) names.emplace_back(dialect->name);
  std::sort(names.begin(), names.end());
  return names;
}

const Dialect& find_dialect(std::string_view name) {
  for (const Dialect* dialect : kDialects)
    if (dialect->name == name) return *dialect;
  throw_error(ErrorKind::bad_call, "tool format {} is not known; there are {}", printable(name),
              fmt::join(dialect_names(), ", "));
}

const Dialect& choose_dialect(std::string_view template_source) {
  const Dialect* chosen = nullptr;
  for (const Dialect* dialect : kDialects) {
    if (chosen != nullptr && dialect->order >= chosen->order) continue;
    const auto& lists = dialect->template_marks;
    if (lists.empty() ||
        std::any_of(lists.begin(), lists.end(), [&](const auto& marks) { return has_all(template_source, marks); }))
      chosen = dialect;
  }
  return *chosen;
}

}  // namespace ingot
