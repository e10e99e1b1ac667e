#include "server/openai/body.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_integer.h"
#include "core/printable.h"
#include "core/sampling_ranges.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void bad_json(const std::string& why) { throw ApiError(400, "the body " + why, "", "invalid_json"); }

std::string show(const Json& value) {
  return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

}  // namespace

Json parse_body(std::string_view text, const RequestLimits& limits, const CancelFlag* cancelled) {
  if (text.find_first_not_of(" \t\r\n") == text.npos) bad_json("is empty: a JSON object is expected");
  try {
    return parse_ordered_json(text, "the body",
                              {.max_depth = kMaxDepth,
                               .max_values = static_cast<size_t>(limits.max_values),
                               .max_keys = static_cast<size_t>(limits.max_keys),
                               .cancelled = cancelled});
  } catch (const JsonError& error) {
    bad_json(error.reason());
  }
}

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number";
    case Json::value_t::string: return "a string";
    case Json::value_t::array: return "an array";
    default: return "an object";
  }
}

std::vector<int32_t> token_list(const Json& list, const std::string& path, int64_t vocab) {
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const Json& element : list) {
    const std::optional<int64_t> id = json_integer(element);
    if (!id)
      fail(fmt::format("{}[{}]", path, tokens.size()), "invalid_type", "must be a token id, got {}", show(element));
    if (*id < 0 || *id >= vocab)
      fail(fmt::format("{}[{}]", path, tokens.size()), "invalid_value", "must be a token id in [0, {}), got {}", vocab,
           *id);
    tokens.push_back(static_cast<int32_t>(*id));
  }
  return tokens;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) {
    if (path_.empty()) bad_json(fmt::format("must be a JSON object, got {}", kind_of(object)));
    fail(path_, "invalid_type", "must be an object, got {}", kind_of(object));
  }
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>())
    if (!value.is_null()) left_.emplace(key, &value);
}

Fields::Fields(const Json& body, EndpointSet endpoint, const RequestLimits& limits) : Fields(body) {
  endpoint_ = endpoint;
  limits_ = &limits;
}

std::string Fields::path_of(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

const Json* Fields::peek(const std::string& name) const {
  const auto found = left_.find(name);
  return found == left_.end() ? nullptr : found->second;
}

const Json* Fields::take(const std::string& name) {
  const auto found = left_.find(name);
  if (found == left_.end()) return nullptr;
  if (endpoint_ != 0) {
    const Parameter* parameter = find_parameter(name, endpoint_);
    if (parameter == nullptr || parameter->off != Off::used) return nullptr;
  }
  const Json* value = found->second;
  left_.erase(found);
  return value;
}

std::vector<std::pair<std::string, const Json*>> Fields::rest() const {
  std::vector<std::pair<std::string, const Json*>> rest;
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>())
    if (left_.contains(key)) rest.emplace_back(key, &value);
  return rest;
}

void Fields::refuse_rest() const {
  if (const auto left = rest(); !left.empty())
    fail(path_of(printable(left[0].first)), "unknown_parameter", "is not a parameter of this API: leave it out");
}

std::optional<bool> Fields::boolean(const std::string& name) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(path_of(name), "invalid_type", "must be true or false, got {}", show(*value));
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t low, int64_t high) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(path_of(name), "invalid_type", "must be an integer, got {}", show(*value));
  const std::optional<int64_t> number = json_integer(*value);
  if (!number && value->is_number_float() && std::fabs(value->get<double>()) < 9e15)
    fail(path_of(name), "invalid_type", "must be an integer, got {}", show(*value));
  const bool below = number ? *number < low : value->get<double>() < 0;
  const bool above = number ? *number > high : !below;
  if (below) fail(path_of(name), "integer_below_min_value", "must be at least {}, got {}", low, show(*value));
  if (above) fail(path_of(name), "integer_above_max_value", "must be at most {}, got {}", high, show(*value));
  return number;
}

std::optional<int64_t> Fields::integer(const std::string& name) {
  const Parameter* parameter = find_parameter(name, endpoint_);
  if (parameter == nullptr) return std::nullopt;
  return integer(name, parameter->least, parameter->limit != nullptr ? limits_->*parameter->limit : parameter->most);
}

std::optional<double> Fields::number(const std::string& name) {
  return peek(name) == nullptr ? std::nullopt : number(name, range_of(*find_parameter(name, endpoint_)));
}

std::optional<double> Fields::number(const std::string& name, const SamplingRange& range) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(path_of(name), "invalid_type", "must be a number, got {}", show(*value));
  const auto number = value->get<double>();
  if (const auto fault = outside(range, number))
    fail(path_of(name), fault->below ? "decimal_below_min_value" : "decimal_above_max_value", "{}", fault->reason);
  return number;
}

std::optional<std::string> Fields::string(const std::string& name) {
  const Json* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(path_of(name), "invalid_type", "must be a string, got {}", show(*value));
  return value->get<std::string>();
}

std::string Fields::required(const std::string& name) {
  std::optional<std::string> text = string(name);
  if (!text) fail(path_of(name), "missing_required_parameter", "is missing");
  return std::move(*text);
}

std::vector<std::string> Fields::strings(const std::string& name, const RequestLimits& limits) {
  const Json* value = take(name);
  if (value == nullptr) return {};
  std::vector<std::string> strings;
  if (value->is_string()) {
    strings.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    if (value->size() > static_cast<size_t>(limits.max_stop))
      fail(path_of(name), "array_above_max_length", "may hold at most {} strings (--limit stops), got {}",
           limits.max_stop, value->size());
    for (const Json& element : *value) {
      if (!element.is_string())
        fail(fmt::format("{}[{}]", path_of(name), strings.size()), "invalid_type", "must be a string, got {}",
             show(element));
      strings.push_back(element.get<std::string>());
    }
  } else {
    fail(path_of(name), "invalid_type", "must be a string or a list of strings, got {}", show(*value));
  }
  for (const std::string& text : strings)
    if (text.empty())
      fail(path_of(name), "invalid_value", "may not hold an empty string");
    else if (text.size() > static_cast<size_t>(limits.max_stop_bytes))
      fail(path_of(name), "string_above_max_length",
           "may hold strings of at most {} bytes (--limit stop-bytes), got one of {}", limits.max_stop_bytes,
           text.size());
  return strings;
}

std::vector<int32_t> Fields::tokens(const std::string& name, size_t most, int64_t vocab) {
  const Json* value = take(name);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(path_of(name), "invalid_type", "must be a list of token ids, got {}", show(*value));
  if (value->size() > most)
    fail(path_of(name), "array_above_max_length", "may hold at most {} token ids, got {}", most, value->size());
  return token_list(*value, path_of(name), vocab);
}

}  // namespace ingot::server::openai
