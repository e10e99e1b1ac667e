#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "server/openai/answer.h"
#include "server/openai/served_model.h"

// Endpoints that ask a model about whole texts: embeddings, and the rating of documents.
namespace ingot::server::openai {

// What is to be run for a request, and who writes its answer.
struct PoolingCall {
  std::string model;  // as the request names it
  std::vector<GenerationRequest> requests;
  std::unique_ptr<AnswerWriter> writer;
};

// POST /v1/embeddings, as OpenAI has it. `id` is the request's.
PoolingCall embeddings(const ServedModel& model, std::string_view body, const std::string& id,
                       const CancelFlag* cancelled);

// POST /rerank and /v1/rerank, as Jina, Cohere and vLLM have it: a model that was made for it is asked whether each
// document answers the query; of others the cosine of embeddings is taken.
PoolingCall rerank(const ServedModel& model, std::string_view body, const std::string& id, const CancelFlag* cancelled);

}  // namespace ingot::server::openai
