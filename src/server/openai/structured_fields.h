#pragma once

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// What the answer's text must be, under any of its names: response_format (OpenAI), structured_outputs and guided_*
// (vLLM), json_schema and grammar (llama-server). At most one may be given; empty ones mean nothing. Compiling it is
// for later.
StructuredOutput take_structured(Fields& fields, const RequestLimits& limits);

// A format as other APIs have it: {"type": "text" | "json_object"} or {"type": "json_schema", "schema", "strict", ...}.
StructuredOutput read_flat_format(const nlohmann::ordered_json& value, const std::string& path,
                                  const RequestLimits& limits);

}  // namespace ingot::server::openai
