#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/pooling.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

struct RerankRequest : ModelRequest {
  std::string query;
  std::string instruction;
  std::vector<std::string> documents;
  size_t top = 0;
  bool return_documents = true;
};

std::string document_text(const Json& element, const std::string& path) {
  if (element.is_string()) return element.get<std::string>();
  Fields fields(element, path);
  const std::optional<std::string> text = fields.string("text");
  if (!text) fail(path + ".text", "missing_required_parameter", "is missing");
  return *text;
}

RerankRequest read_request(std::string_view body, const RequestLimits& limits, int64_t most_documents,
                           const CancelFlag* cancelled) {
  const Json json = parse_body(body, limits, cancelled);
  Fields fields(json, kRerankEndpoint, limits);
  RerankRequest request;
  request.model = fields.string("model").value_or("");
  const std::optional<std::string> query = fields.string("query");
  if (!query) fail("query", "missing_required_parameter", "is missing");
  request.query = *query;
  request.instruction = fields.string("instruction").value_or("");
  const Json* documents = fields.take("documents");
  if (documents == nullptr) fail("documents", "missing_required_parameter", "is missing");
  if (!documents->is_array()) fail("documents", "invalid_type", "must be a list of texts, got {}", kind_of(*documents));
  if (documents->empty()) fail("documents", "empty_array", "may not be empty");
  if (documents->size() > static_cast<size_t>(most_documents))
    fail("documents", "array_above_max_length", "may hold at most {} texts (--limit inputs), got {}", most_documents,
         documents->size());
  for (const Json& element : *documents)
    request.documents.push_back(document_text(element, fmt::format("documents[{}]", request.documents.size())));
  const auto count = static_cast<int64_t>(request.documents.size());
  // More than there are means all, as elsewhere.
  request.top = static_cast<size_t>(std::min(count, fields.integer("top_n").value_or(count)));
  request.return_documents = fields.boolean("return_documents").value_or(true);
  check_other_parameters(fields);
  return request;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  const auto dot = [](const std::vector<float>& x, const std::vector<float>& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0, std::plus<>(),
                              [](float p, float q) { return static_cast<double>(p) * q; });
  };
  return dot(a, b) / std::max(std::sqrt(dot(a, a) * dot(b, b)), 1e-12);
}

class RerankWriter final : public AnswerWriter {
 public:
  // `judged`: answers are pairs, for yes and for no; otherwise the query's vector and then those of the documents.
  RerankWriter(std::string id, std::string model, RerankRequest request, bool judged)
      : id_(std::move(id)), model_(std::move(model)), request_(std::move(request)), judged_(judged) {}

  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    std::vector<std::pair<double, size_t>> rated;
    for (size_t i = 0; i < request_.documents.size(); ++i) rated.emplace_back(score(answers, i), i);
    std::stable_sort(rated.begin(), rated.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    rated.resize(request_.top);
    Json results = Json::array();
    for (const auto& [score, index] : rated) {
      Json result = {{"index", index}, {"relevance_score", score}};
      if (request_.return_documents) result["document"] = {{"text", request_.documents[index]}};
      results.push_back(std::move(result));
    }
    const int64_t tokens = judged_ ? usage.prompt_tokens / 2 : usage.prompt_tokens;  // each was asked twice
    return dump({{"id", id_},
                 {"object", "list"},
                 {"model", model_},
                 {"results", std::move(results)},
                 {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
  }
  void stream(size_t, const ChoiceDelta&, const std::vector<TokenScore>&, const Usage&, std::string&) override {}
  void stream_end(const Usage&, std::string&) override {}
  void stream_error(const ErrorReply&, std::string&) override {}

 private:
  double score(const std::vector<PromptAnswer>& answers, size_t document) const {
    const auto choice = [&](size_t i) -> const ChoiceDelta& { return answers.at(i).choices.at(0); };
    if (!judged_) return cosine(choice(0).embedding, choice(document + 1).embedding);
    const double yes = choice(2 * document).scores.at(0).logprob, no = choice(2 * document + 1).scores.at(0).logprob;
    return 1 / (1 + std::exp(no - yes));
  }

  const std::string id_, model_;
  const RerankRequest request_;
  const bool judged_;
};

// How Qwen3-Reranker was trained to be asked. Its parts are tokenized by themselves.
constexpr const char* kJudgeBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
constexpr const char* kJudgeEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr const char* kInstruction = "Given a web search query, retrieve relevant passages that answer the query";

// Two requests a document, which share all but their last block of the prompt: how likely is yes, how likely is no?
std::vector<GenerationRequest> judge(const ServedModel& model, const RerankRequest& request,
                                     const CancelFlag* cancelled) {
  const Tokenizer& words = model.tokenizer("query");
  const auto encode = [&](const std::string& text, bool special) {
    return words.encode(text, {.add_special = false, .parse_special = special, .cancelled = cancelled});
  };
  const std::vector<int32_t> begin = encode(kJudgeBegin, true), end = encode(kJudgeEnd, true);
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    const std::string question = fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}",
                                             request.instruction.empty() ? kInstruction : request.instruction,
                                             request.query, request.documents[i]);
    const std::string param = fmt::format("documents[{}]", i);
    model.check_bytes(param, question);
    std::vector<int32_t> prompt = begin;
    const std::vector<int32_t> middle = encode(question, false);
    prompt.insert(prompt.end(), middle.begin(), middle.end());
    prompt.insert(prompt.end(), end.begin(), end.end());
    model.check_length(prompt.size(), 1, param.c_str());
    for (const char* answer : {"yes", "no"}) {
      GenerationRequest& one = requests.emplace_back();
      one.prompt = prompt;
      one.sampling = {.temperature = 0, .allowed_token_ids = {words.find(answer)}};
      one.max_tokens = 1;
      one.logprobs = 0;
      one.ignore_eos = true;
    }
  }
  return requests;
}

std::vector<GenerationRequest> compare(const ServedModel& model, const RerankRequest& request,
                                       const CancelFlag* cancelled) {
  const ModelInfo& info = model.generator().model_info();
  std::vector<GenerationRequest> requests;
  const auto add = [&](const std::string& param, const std::string& text) {
    GenerationRequest& one = requests.emplace_back();
    one.prompt = model.encode(param, text, true, true, cancelled);
    one.embed = true;
    model.check_length(one.prompt.size(), 0, param.c_str());
  };
  const std::string before =
      request.instruction.empty() ? info.query_prompt : fmt::format("Instruct: {}\nQuery:", request.instruction);
  add("query", before + request.query);
  for (size_t i = 0; i < request.documents.size(); ++i)
    add(fmt::format("documents[{}]", i), info.document_prompt + request.documents[i]);
  return requests;
}

}  // namespace

PoolingCall rerank(const ServedModel& model, std::string_view body, const std::string& id,
                   const CancelFlag* cancelled) {
  const RequestLimits& limits = model.request_limits();
  const bool judged = model.judges();
  RerankRequest request = read_request(body, limits, judged ? limits.max_inputs / 2 : limits.max_inputs, cancelled);
  model.check_name(request.model);
  if (!judged) model.check_pooling();
  uint64_t bytes = 0;
  for (const std::string& document : request.documents) bytes += 64 + (request.return_documents ? document.size() : 0);
  model.check_answer("documents", bytes);
  PoolingCall call{.model = request.model.empty() ? model.name() : request.model};
  call.requests = judged ? judge(model, request, cancelled) : compare(model, request, cancelled);
  call.writer = std::make_unique<RerankWriter>("rerank-" + id, call.model, std::move(request), judged);
  return call;
}

}  // namespace ingot::server::openai
