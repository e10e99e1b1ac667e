#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "model/families/family.h"

namespace ingot {

// The settings of a family, in the order of GGUF's files. The size of a head, which may follow from others, is beside
// them.
std::vector<Setting> settings_of(const Family& family);

// What one kind of file calls the settings.
struct ConfigNames {
  std::string where;  // the file
  const Family& family;
  const char* Setting::* kind;  // &Setting::hf or &Setting::gguf
  std::string prefix;           // of all keys, in errors
  std::string sliding_window, rope_theta, rope_dims, rope_factor, rope_original, bos, eos;

  const char* key(const Setting& setting) const { return own_name(family.keys, setting.*kind); }
  std::string of(const Setting& setting) const { return prefix + key(setting); }
};

// What every reader does when it has the settings: the size of a head, if the file does not state it; plain layers.
void settle_sizes(std::optional<int64_t> head_size, const ConfigNames& names, ModelConfig& config);
// And at its end: do the values make a model?
void check_config(const ModelConfig& config, const ConfigNames& names);

// Fills in what the file states. Source: JsonView or GgufKeys.
template <typename Source>
void read_settings(const Source& source, const ConfigNames& names, ModelConfig& config) {
  for (const Setting& setting : settings_of(names.family)) {
    if (setting.*names.kind == nullptr) continue;
    const char* key = names.key(setting);
    const auto read = [&](auto member) {
      auto& value = config.*member;
      using T = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<T, bool>) {
        value = source.find_bool(key).value_or(value);
      } else if constexpr (std::is_same_v<T, int64_t>) {
        if (value == 0 && setting.stand_in != nullptr) value = config.*setting.stand_in;
        value = value == 0 ? source.need_int(key) : source.find_int(key).value_or(value);
      } else {
        value = static_cast<T>(value == 0 ? source.need_double(key) : source.find_double(key).value_or(value));
      }
    };
    std::visit(read, setting.member);
  }
  settle_sizes(source.find_int(names.key(kHeadSize)), names, config);
}

}  // namespace ingot
