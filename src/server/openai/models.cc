#include "server/openai/models.h"

#include <nlohmann/json.hpp>

#include "core/sampling_ranges.h"

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

Json sampling_json(const SamplingParams& s) {
  return {{"temperature", as_written(s.temperature)},
          {"top_p", as_written(s.top_p)},
          {"top_k", s.top_k},
          {"min_p", as_written(s.min_p)},
          {"presence_penalty", as_written(s.presence_penalty)},
          {"frequency_penalty", as_written(s.frequency_penalty)},
          {"repetition_penalty", as_written(s.repetition_penalty)}};
}

}  // namespace

HttpReply show_props(const ServedModel& model) {
  Json settings = sampling_json(model.request_limits().sampling);
  settings["n_ctx"] = model.context();
  return {.body = dump({{"model_alias", model.name()},
                        {"default_generation_settings", std::move(settings)},
                        {"chat_sampling", sampling_json(model.generator().model_info().sampling.over(kChatSampling))},
                        {"total_slots", model.generator().limits().max_seqs}})};
}

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
