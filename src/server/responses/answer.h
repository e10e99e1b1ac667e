#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "server/openai/answer.h"
#include "server/responses/store.h"

namespace ingot::server::responses {

// What a response says beside what the model said.
struct ResponseFrame {
  std::string echoed;                                   // the members that repeat the request, as a JSON object
  std::shared_ptr<const nlohmann::ordered_json> items;  // what it answers to
  std::shared_ptr<ResponseStore> store;                 // null: it is not kept
  std::string tenant;                                   // for whom it is
};

// The answer of /v1/responses: output items, whole or as the events of their making.
std::unique_ptr<openai::AnswerWriter> make_response_writer(openai::AnswerContext context, ResponseFrame frame);

}  // namespace ingot::server::responses
