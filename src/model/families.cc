#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "model/families/family.h"

namespace ingot {

namespace {

constexpr const Family* kFamilies[] = {
#define INGOT_FAMILY(name) &families::name,
#include "families_list.inc"  // made by the build
#undef INGOT_FAMILY
};

}  // namespace

const Family& find_family(const char* Family::* kind, std::string_view name, const std::string& where) {
  std::vector<std::string_view> supported;
  for (const Family* family : kFamilies) {
    if (kind == &Family::gguf && !family->reads_gguf) continue;
    if (name == family->*kind) return *family;
    if (!family->head) supported.push_back(family->*kind);
  }
  throw_error(ErrorKind::declined, "{}: architecture {} is not supported; supported are {}", where, printable(name),
              fmt::join(supported, ", "));
}

const Family& family_of(const ModelConfig& config) {
  const Family* found = nullptr;  // of several the one that reads the architecture's GGUF files
  for (const Family* family : kFamilies)
    if (config.architecture == family->gguf && (found == nullptr || family->reads_gguf)) found = family;
  return found != nullptr ? *found : find_family(&Family::gguf, config.architecture, config.name);
}

const char* own_name(const Names& names, const char* common) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.first == common; });
  return found == names.end() ? common : found->second;
}

}  // namespace ingot
