#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/cancel.h"
#include "core/sampling_ranges.h"
#include "server/openai/limits.h"

namespace ingot::server::openai {

using EndpointSet = uint32_t;  // bits: parameters.h

// Parses a request body of unknown origin: strict JSON with valid UTF-8, no key twice in one object, at most
// kMaxDepth levels, and values and keys within the limits. Key order is kept, since chat templates may print objects.
// Time and memory are linear in the text. Throws ApiError (400).
inline constexpr int kMaxDepth = 64;
nlohmann::ordered_json parse_body(std::string_view text, const RequestLimits& limits = {},
                                  const CancelFlag* cancelled = nullptr);

// Typed access to the parameters of one JSON object. A null counts as absent everywhere. Every error is an ApiError
// that names the parameter, the range and the value. The json value must outlive the view.
class Fields {
 public:
  using Json = nlohmann::ordered_json;

  // `path` is where the object lies ("stream_options"); empty: the body itself.
  explicit Fields(const Json& object, std::string path = "");
  // The body of a request to an endpoint: only what the table of parameters lists for it can be taken.
  Fields(const Json& body, EndpointSet endpoint, const RequestLimits& limits);
  EndpointSet endpoint() const { return endpoint_; }

  // The value, or nullptr when absent or null. Whatever was taken is known to the server: see rest().
  const Json* take(const std::string& name);
  const Json* peek(const std::string& name) const;  // likewise, without taking it
  // Each name that was not taken, in the order of the text; nulls are left out.
  std::vector<std::pair<std::string, const Json*>> rest() const;
  void refuse_rest() const;                            // 400 naming the first of them
  std::string path_of(const std::string& name) const;  // "stream_options.include_usage"

  std::optional<bool> boolean(const std::string& name);
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high);
  // Of a body, within the bounds that the table has.
  std::optional<int64_t> integer(const std::string& name);
  std::optional<double> number(const std::string& name);
  std::optional<double> number(const std::string& name, const SamplingRange& range);
  std::optional<std::string> string(const std::string& name);
  std::string required(const std::string& name);  // a string that must be there
  // A string or a list of strings, none of them empty; stops and stop-bytes of the limits hold.
  std::vector<std::string> strings(const std::string& name, const RequestLimits& limits);
  // A list of at most `most` token ids, all below `vocab`.
  std::vector<int32_t> tokens(const std::string& name, size_t most, int64_t vocab);

 private:
  const Json& object_;
  std::string path_;
  EndpointSet endpoint_ = 0;
  const RequestLimits* limits_ = nullptr;
  std::unordered_map<std::string_view, const Json*> left_;
};

// "a string", "an integer": for messages.
std::string_view kind_of(const nlohmann::ordered_json& value);
// All elements as token ids below `vocab`; `path` names the list in errors.
std::vector<int32_t> token_list(const nlohmann::ordered_json& list, const std::string& path, int64_t vocab);

}  // namespace ingot::server::openai
