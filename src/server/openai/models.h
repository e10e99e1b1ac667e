#pragma once

#include "server/http.h"
#include "server/openai/served_model.h"

namespace ingot::server::openai {

// GET /v1/models and /v1/models/{id}. `created` is when the model was loaded, in seconds since 1970.
HttpReply list_models(const ServedModel& model, int64_t created);
HttpReply show_model(const ServedModel& model, const std::string& name, int64_t created);

// GET /props: how requests are sampled that say nothing (`default_generation_settings`, as llama-server calls it), and
// what the chat page takes in its place (`chat_sampling`).
HttpReply show_props(const ServedModel& model);

}  // namespace ingot::server::openai
