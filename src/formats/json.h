#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace ingot {

// As parse_json over a whole file; io when it cannot be read.
nlohmann::json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

// Typed access to one JSON object, with errors that name the file and the key:
//   config.json: hidden_size must be an integer, got string
// A null value counts as absent. The json value must outlive the view.
class JsonView {
 public:
  // `name` is the file; `prefix` the path to this object ("rope_scaling."). Throws bad_file when it is not an object.
  JsonView(const nlohmann::json& value, std::string name, std::string prefix = "");

  bool has(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<int64_t> find_int(std::string_view key) const;  // 8192.0 counts as an integer
  std::optional<double> find_double(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<JsonView> find_object(std::string_view key) const;
  std::vector<int64_t> find_ints(std::string_view key) const;  // an integer or a list of them; empty when absent
  std::vector<std::string> find_strings(std::string_view key) const;

  bool need_bool(std::string_view key) const;
  int64_t need_int(std::string_view key) const;
  double need_double(std::string_view key) const;
  std::string need_string(std::string_view key) const;
  JsonView need_object(std::string_view key) const;

  const nlohmann::json* find(std::string_view key) const;  // nullptr when absent or null
  const nlohmann::json& value() const { return *value_; }
  const std::string& name() const { return name_; }
  std::string path_of(std::string_view key) const;  // "rope_scaling.factor"

 private:
  const nlohmann::json* value_;
  std::string name_;
  std::string prefix_;
};

}  // namespace ingot
