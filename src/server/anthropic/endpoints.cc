#include "server/anthropic/endpoints.h"

#include <fmt/chrono.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "server/anthropic/request.h"
#include "server/openai/answer.h"

namespace ingot::server::anthropic {
namespace {

using Json = nlohmann::ordered_json;

Json model_json(const openai::ServedModel& model, const std::string& name, int64_t loaded) {
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(loaded)))},
          {"lifecycle", "active"},
          {"max_input_tokens", model.context()},
          {"max_tokens", model.context()}};
}

}  // namespace

HttpReply count_tokens(const openai::ServedModel& model, std::string_view body, const CancelFlag* cancelled) {
  const openai::CompletionRequest request = parse_count_request(body, model.request_limits(), cancelled);
  model.check_name(request.model);
  return {.body = openai::dump({{"input_tokens", model.encode(*request.chat, true, cancelled).size()}})};
}

HttpReply list_models(const openai::ServedModel& model, int64_t loaded) {
  Json list = Json::array();
  for (const std::string& name : model.names()) list.push_back(model_json(model, name, loaded));
  return {.body = openai::dump({{"data", std::move(list)},
                                {"has_more", false},
                                {"first_id", model.names().front()},
                                {"last_id", model.names().back()}})};
}

HttpReply show_model(const openai::ServedModel& model, const std::string& name, int64_t loaded) {
  model.check_name(name);
  return {.body = openai::dump(model_json(model, name.empty() ? model.name() : name, loaded))};
}

}  // namespace ingot::server::anthropic
