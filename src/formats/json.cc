#include "formats/json.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_integer.h"
#include "core/printable.h"
#include "formats/mapped_file.h"

namespace ingot {
namespace {

using nlohmann::json;

std::string_view kind_of(const json& value) {
  if (value.is_number_float()) return "float";
  if (value.is_number()) return "integer";
  return value.type_name();
}

[[noreturn]] void wrong_type(const JsonView& view, std::string_view key, std::string_view wanted, const json& value) {
  throw_error(ErrorKind::bad_file, "{}: {} must be {}, got {}", view.name(), view.path_of(key), wanted, kind_of(value));
}

template <typename T>
T needed(const JsonView& view, std::string_view key, std::optional<T> value) {
  if (!value) throw_error(ErrorKind::bad_file, "{}: {} is missing", view.name(), view.path_of(key));
  return *std::move(value);
}

}  // namespace

json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  const MappedFile file = MappedFile::open(path);
  const std::span<const std::byte> bytes = file.bytes();
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.name(), limits);
}

JsonView::JsonView(const json& value, std::string name, std::string prefix)
    : value_(&value), name_(std::move(name)), prefix_(std::move(prefix)) {
  if (value.is_object()) return;
  if (prefix_.empty()) throw_error(ErrorKind::bad_file, "{}: must be a JSON object, got {}", name_, kind_of(value));
  throw_error(ErrorKind::bad_file, "{}: {} must be an object, got {}", name_,
              std::string_view(prefix_).substr(0, prefix_.size() - 1), kind_of(value));
}

std::string JsonView::path_of(std::string_view key) const { return prefix_ + printable(key); }

const json* JsonView::find(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonView::has(std::string_view key) const { return find(key) != nullptr; }

std::optional<bool> JsonView::find_bool(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong_type(*this, key, "true or false", *value);
  return value->get<bool>();
}

std::optional<int64_t> JsonView::find_int(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = json_integer(*value);
  if (!number) wrong_type(*this, key, "an integer", *value);
  return number;
}

std::optional<double> JsonView::find_double(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(*this, key, "a number", *value);
  return value->get<double>();
}

std::optional<std::string> JsonView::find_string(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(*this, key, "a string", *value);
  return value->get<std::string>();
}

std::optional<JsonView> JsonView::find_object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return JsonView(*value, name_, path_of(key) + ".");
}

std::vector<int64_t> JsonView::find_ints(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (const std::optional<int64_t> one = json_integer(*value)) return {*one};
  std::vector<int64_t> numbers;
  if (!value->is_array()) wrong_type(*this, key, "an integer or a list of integers", *value);
  for (const json& element : *value) {
    const std::optional<int64_t> number = json_integer(element);
    if (!number) wrong_type(*this, key, "a list of integers only", element);
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string> JsonView::find_strings(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  std::vector<std::string> strings;
  if (!value->is_array()) wrong_type(*this, key, "a list of strings", *value);
  for (const json& element : *value) {
    if (!element.is_string()) wrong_type(*this, key, "a list of strings only", element);
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

bool JsonView::need_bool(std::string_view key) const { return needed(*this, key, find_bool(key)); }
int64_t JsonView::need_int(std::string_view key) const { return needed(*this, key, find_int(key)); }
double JsonView::need_double(std::string_view key) const { return needed(*this, key, find_double(key)); }
std::string JsonView::need_string(std::string_view key) const { return needed(*this, key, find_string(key)); }
JsonView JsonView::need_object(std::string_view key) const { return needed(*this, key, find_object(key)); }

}  // namespace ingot
