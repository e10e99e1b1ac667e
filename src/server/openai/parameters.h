#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "core/sampling_ranges.h"
#include "server/openai/body.h"
#include "server/openai/limits.h"

// Every parameter of every endpoint, once: what the readers look at (Fields), what is accepted without effect, what
// /openapi.json, docs/server.md and docs/apis.md tell. A name that is not here is refused, because nobody can tell what
// it would have changed.
namespace ingot::server::openai {

// Endpoints with a body.
inline constexpr EndpointSet kChatEndpoint = 1, kCompletionsEndpoint = 2, kInfillEndpoint = 4, kTokenizeEndpoint = 8,
                             kDetokenizeEndpoint = 16, kTemplateEndpoint = 32, kEmbeddingsEndpoint = 64,
                             kRerankEndpoint = 128, kResponsesEndpoint = 256, kMessagesEndpoint = 512,
                             kCountEndpoint = 1024;
inline constexpr EndpointSet kOwnEndpoints = 255;  // those that this folder reads
inline constexpr EndpointSet kEveryEndpoint = 2047;

// What the value is, for its schema.
enum class ValueType : uint8_t { boolean, integer, number, text, texts, tokens, object, other };

// What a value must be for a parameter to change nothing.
enum class Off : uint8_t {
  used,       // it is read: any value it may have
  always,     // the parameter never changes the answer
  empty,      // [], {} or ""
  no_choice,  // "none" or "auto", as there are no tools to choose from
  text_only,  // ["text"]
  is_true,
  is_false,
  medium,  // the default level of a scale
  never,   // null is all that is accepted
};

struct Parameter {
  std::string_view name;
  EndpointSet endpoints;
  ValueType type;
  std::string_view meaning;
  // Of integers and numbers; those of sampling have theirs in core/sampling_ranges.h.
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  int64_t RequestLimits::* limit = nullptr;  // a most of integers that is set elsewhere
  bool required = false;
  Off off = Off::used;
  std::string_view hint = "is not supported by this server";  // why any other value is refused
  std::string_view schema = {};                               // JSON, of other types
};

// Of this folder's endpoints, and what the other APIs have of their own.
std::span<const Parameter> parameter_table();
// Null: the endpoint knows nothing of the name.
const Parameter* find_parameter(std::string_view name, EndpointSet endpoint);

// Of a number.
SamplingRange range_of(const Parameter& parameter);

// Judges every parameter of the body that nobody took. What cannot change the answer is accepted when it has the right
// type; what could is accepted only with the value that means "off"; a name that is not known is refused. Throws
// ApiError naming the parameter.
void check_other_parameters(const Fields& fields);

}  // namespace ingot::server::openai
