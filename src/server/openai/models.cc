#include "server/openai/models.h"

#include <nlohmann/json.hpp>

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

Json model_json(const ServedModel& model, const std::string& name, int64_t created) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "ingot"},
          {"root", model.name()},
          {"parent", nullptr},
          {"max_model_len", model.context()}};
}

}  // namespace

HttpReply list_models(const ServedModel& model, int64_t created) {
  Json list = Json::array();
  for (const std::string& name : model.names()) list.push_back(model_json(model, name, created));
  return {.body = dump({{"object", "list"}, {"data", std::move(list)}})};
}

HttpReply show_model(const ServedModel& model, const std::string& name, int64_t created) {
  model.check_name(name);
  return {.body = dump(model_json(model, name.empty() ? model.name() : name, created))};
}

}  // namespace ingot::server::openai
