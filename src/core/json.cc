#include "core/json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/printable.h"

namespace ingot {
namespace {

// Builds the value while it is read.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& name, const JsonLimits& limits) : name_(name), limits_(limits) {}

  Json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Json::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Json::number_float_t value, const typename Json::string_t&) override { return add(value); }
  bool string(typename Json::string_t& value) override { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) override { return false; }

  bool start_object(size_t) override {
    open(Json::object());
    // A vector of pairs with constant keys copies when it grows: spare the longest texts that.
    if constexpr (kOrdered)
      if (open_.size() == 1) open_.back().value->template get_ref<typename Json::object_t&>().reserve(64);
    return true;
  }
  bool key(typename Json::string_t& key) override {
    if (++keys_ > limits_.max_keys) refuse("holds more than {} keys", limits_.max_keys);
    if (limits_.unique_keys && !open_.back().keys.insert(key).second)
      refuse("has the key {} twice in one object", printable(key));
    open_.back().key = std::move(key);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    if (const size_t end = text.find("] "); text.starts_with('[') && end != text.npos) text.remove_prefix(end + 2);
    throw JsonError(name_, "is not valid JSON: " + printable(text, 200));
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw JsonError(name_, fmt::format(format, std::forward<Args>(args)...));
  }

  struct Level {
    Json* value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  Json& place(Json&& value) {
    if (++values_ > limits_.max_values) refuse("holds more than {} values", limits_.max_values);
    check_cancelled(limits_.cancelled);
    if (open_.empty()) return root = std::move(value);
    Level& level = open_.back();
    if (level.value->is_array())
      return level.value->template get_ref<typename Json::array_t&>().emplace_back(std::move(value));
    auto& object = level.value->template get_ref<typename Json::object_t&>();
    if constexpr (kOrdered) {
      // ordered_json's own insertion looks through all keys before.
      if (limits_.unique_keys) {
        object.Json::object_t::Container::emplace_back(std::move(level.key), std::move(value));
        return object.Json::object_t::Container::back().second;
      }
    }
    Json& slot = object[std::move(level.key)];
    slot = std::move(value);
    return slot;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  // Only the innermost open value grows, so pointers to the ones around it stay good.
  bool open(Json value) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth))
      refuse("is nested deeper than {} levels", limits_.max_depth);
    open_.push_back({&place(std::move(value)), {}, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& name_;
  const JsonLimits& limits_;
  std::vector<Level> open_;
  size_t values_ = 0, keys_ = 0;
};

template <typename Json>
Json parse(std::string_view text, const std::string& name, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    throw JsonError(name, fmt::format("{} bytes of JSON are more than the {} allowed", text.size(), limits.max_bytes));
  Builder<Json> builder(name, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.root);
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  return parse<nlohmann::json>(text, name, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  return parse<nlohmann::ordered_json>(text, name, limits);
}

}  // namespace ingot
