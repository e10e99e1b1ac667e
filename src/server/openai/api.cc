#include "server/openai/api.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/anthropic/endpoints.h"
#include "server/anthropic/request.h"
#include "server/ascii.h"
#include "server/openai/call.h"
#include "server/openai/models.h"
#include "server/openai/openapi.h"
#include "server/openai/pooling.h"
#include "server/openai/tokenize.h"
#include "server/responses/endpoints.h"
#include "server/responses/request.h"

namespace ingot::server::openai {
namespace {

enum class Endpoint {
  page,
  live,
  health,
  ready,
  version,
  metrics,
  openapi,
  props,
  models,
  model,
  tokenize,
  detokenize,
  apply_template,
  chat,
  completions,
  infill,
  embeddings,
  rerank,
  responses,
  response,
  delete_response,
  input_items,
  cancel_response,
  messages,
  count_tokens,
  integrity
};

struct Route : RouteInfo {
  Endpoint id;
};

constexpr auto kRoutes = std::to_array<Route>({
    {{"GET", "/", "the chat page"}, Endpoint::page},
    {{"GET", "/katex.js", "what sets its formulas"}, Endpoint::page},
    {{"GET", "/katex.css", "likewise"}, Endpoint::page},
    {{"GET", "/live", "the process answers"}, Endpoint::live},
    {{"GET", "/health", "a request would be served"}, Endpoint::health},
    {{"GET", "/ready", "likewise, and new ones are taken"}, Endpoint::ready},
    {{"GET", "/version", "of the server"}, Endpoint::version},
    {{"GET", "/metrics", "for Prometheus"}, Endpoint::metrics},
    {{"GET", "/openapi.json", "this document"}, Endpoint::openapi},
    {{"GET", "/props", "how requests are sampled that say nothing"}, Endpoint::props},
    {{"GET", "/v1/models", "the served names"}, Endpoint::models},
    {{"GET", "/v1/models/{model}", "one of them"}, Endpoint::model},
    {{"POST", "/v1/chat/completions", "the answer to a conversation", kChatEndpoint}, Endpoint::chat},
    {{"POST", "/v1/completions", "goes on with a text", kCompletionsEndpoint}, Endpoint::completions},
    {{"POST", "/v1/responses", "OpenAI's Responses", kResponsesEndpoint}, Endpoint::responses},
    {{"GET", "/v1/responses/{id}", "one that is kept"}, Endpoint::response},
    {{"DELETE", "/v1/responses/{id}", "forgets it"}, Endpoint::delete_response},
    {{"GET", "/v1/responses/{id}/input_items", "what it was given"}, Endpoint::input_items},
    {{"POST", "/v1/responses/{id}/cancel", "of those in the background, which there are none of"},
     Endpoint::cancel_response},
    {{"POST", "/v1/messages", "Anthropic's Messages", kMessagesEndpoint}, Endpoint::messages},
    {{"POST", "/v1/messages/count_tokens", "how long a conversation is", kCountEndpoint}, Endpoint::count_tokens},
    {{"POST", "/infill", "fills a gap in a text", kInfillEndpoint}, Endpoint::infill},
    {{"POST", "/v1/embeddings", "texts as vectors", kEmbeddingsEndpoint}, Endpoint::embeddings},
    {{"POST", "/rerank", "rates documents for a query", kRerankEndpoint}, Endpoint::rerank},
    {{"POST", "/v1/rerank", "the same", kRerankEndpoint}, Endpoint::rerank},
    {{"POST", "/apply-template", "the prompt of a conversation", kTemplateEndpoint}, Endpoint::apply_template},
    {{"POST", "/tokenize", "the tokens of a text or a conversation", kTokenizeEndpoint}, Endpoint::tokenize},
    {{"POST", "/detokenize", "the text of tokens", kDetokenizeEndpoint}, Endpoint::detokenize},
    {{"GET", "/debug/integrity", "the orchestrator checks itself"}, Endpoint::integrity},
});

// What stands in the path for the part in braces; nothing: the path is another.
std::optional<std::string> part_of(const Route& route, std::string_view path) {
  const size_t open = route.path.find('{');
  if (open == route.path.npos) return path == route.path ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = route.path.substr(0, open), after = route.path.substr(route.path.find('}') + 1);
  if (path.size() < before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after))
    return std::nullopt;
  const std::string_view part = path.substr(before.size(), path.size() - before.size() - after.size());
  if (route.id != Endpoint::model && (part.empty() || part.find('/') != part.npos)) return std::nullopt;
  return std::string(part);
}

bool allows(const Route& route, std::string_view method) {
  return method == route.method || (method == "HEAD" && route.method == "GET");
}

// That of the method, or else another of the same path; null: there is nothing.
const Route* find_route(std::string_view method, std::string_view path) {
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (!part_of(route, path)) continue;
    if (allows(route, method)) return &route;
    if (found == nullptr) found = &route;
  }
  return found;
}

// The header of a 405.
std::string allowed_methods(const Route& route) {
  std::string methods;
  for (const Route& other : kRoutes)
    if (other.path == route.path)
      methods += (methods.empty() ? "" : ", ") + std::string(other.method == "GET" ? "GET, HEAD" : other.method);
  return methods;
}

// A body in another type, or in none, is refused, so that a web page cannot send one here without asking (CORS).
void check_content_type(const HttpRequest& request) {
  const std::string_view header = request.header("content-type");
  const std::string type = ascii_lower(trim(header.substr(0, header.find(';'))));
  if (type == "application/json") return;
  throw ApiError(415,
                 fmt::format("the body must be application/json, got {}: set the header Content-Type",
                             type.empty() ? "no type" : printable(type)),
                 "", "unsupported_media_type");
}

constexpr uint64_t kFailuresInARow = 3;  // of steps: the device is not well

class ApiImpl final : public Api {
 public:
  explicit ApiImpl(ApiOptions options)
      : state_(std::make_shared<ApiState>(std::move(options))), started_s_(state_->now_s()) {}

  ~ApiImpl() override {
    const auto calls = state_->take_calls();
    for (const auto& call : calls) call->cancel();
    state_->tasks.stop();
    for (const auto& call : calls) call->let_go();
  }

  void attach(std::shared_ptr<Generator> generator) override {
    auto model = std::make_shared<const ServedModel>(std::move(generator), state_->options);
    const std::lock_guard lock(mutex_);
    model_ = std::move(model);
    loaded_s_ = state_->now_s();
  }

  void drain() override {
    draining_ = true;
    const std::lock_guard lock(mutex_);
    if (model_) model_->generator().drain();
  }

  void give_up(const std::string& why) override {
    state_->fail({.status = 503, .message = why + ": try again later", .param = "", .code = "rank_lost"});
  }

  void record(const HttpRequest& request, int status, std::string_view error) override {
    RequestTrace trace(state_, known_method(request), route_name(find_route(request.method, request.path)));
    trace.record().error = error;
    trace.finish(status);
  }

  void handle(std::shared_ptr<Exchange> exchange) override {
    const HttpRequest& request = exchange->request();
    const Route* route = find_route(request.method, request.path);
    RequestTrace trace(state_, known_method(request), route_name(route));
    const auto cancelled = std::make_shared<CancelFlag>(false);
    if (request.method == "POST") exchange->on_disconnect([cancelled] { *cancelled = true; });
    std::shared_ptr<Call> call;
    try {
      if (route == nullptr)
        throw ApiError(404, fmt::format("there is nothing at {}", printable(request.path)), "", "not_found");
      if (!allows(*route, request.method)) return refuse_method(*exchange, *route, trace);
      if (generates(route->id)) {
        start_call(exchange, route->id, *cancelled, trace, call);
      } else if (route->id == Endpoint::embeddings || route->id == Endpoint::rerank) {
        start_pooling(exchange, route->id == Endpoint::rerank ? rerank : embeddings, *cancelled, trace, call);
      } else {
        HttpReply reply = reply_to(request, *route, *cancelled);
        const int status = reply.status;
        exchange->reply(std::move(reply));
        trace.finish(status);
      }
    } catch (const std::exception& error) {
      const ErrorReply error_reply = to_error_reply(error);
      RequestTrace& last = call ? call->trace() : trace;
      last.record().error = error_reply.log_text();
      exchange->reply(error_reply.reply(request, retry_after_s()));
      last.finish(error_reply.status);
      if (call) call->let_go();
    }
  }

 private:
  static std::string route_name(const Route* route) { return route == nullptr ? "other" : std::string(route->path); }

  static bool generates(Endpoint endpoint) {
    return endpoint == Endpoint::chat || endpoint == Endpoint::completions || endpoint == Endpoint::responses ||
           endpoint == Endpoint::messages || endpoint == Endpoint::infill;
  }

  // Metrics have a label for the method, which clients must not be able to fill with anything they like.
  static HttpRequest known_method(const HttpRequest& request) {
    static constexpr std::array<std::string_view, 7> kMethods = {"GET",   "HEAD",   "POST",   "PUT",
                                                                 "PATCH", "DELETE", "OPTIONS"};
    const bool known = std::find(kMethods.begin(), kMethods.end(), request.method) != kMethods.end();
    return {.method = known ? request.method : "other", .path = request.path, .id = request.id, .peer = request.peer};
  }

  std::shared_ptr<const ServedModel> model_or_null() const {
    const std::lock_guard lock(mutex_);
    return model_;
  }

  void check_failure() const {
    if (const auto failure = state_->failure())
      throw ApiError(failure->status, failure->message, failure->param, failure->code);
  }

  // 503 while there is none, or none for new requests.
  std::shared_ptr<const ServedModel> model(bool for_generation) const {
    if (for_generation) check_failure();
    if (for_generation && draining_)
      throw ApiError(503, "the server is shutting down and takes no new requests: try another one", "", "draining");
    std::shared_ptr<const ServedModel> model = model_or_null();
    if (!model) throw ApiError(503, "the model is still loading: try again later", "", "loading");
    return model;
  }

  double retry_after_s() const {
    const auto model = model_or_null();
    return model ? model->generator().retry_after_s() : 1;
  }

  void refuse_method(Exchange& exchange, const Route& route, RequestTrace& trace) {
    const std::string allow = allowed_methods(route), message = fmt::format("{} takes {}", route.path, allow);
    HttpReply reply = error_reply({.status = 405, .message = message, .code = "method_not_allowed"},
                                  error_shape(exchange.request()), exchange.request().id);
    reply.headers = {{"Allow", allow}};
    exchange.reply(std::move(reply));
    trace.finish(405);
  }

  HttpReply reply_to(const HttpRequest& request, const Route& route, const CancelFlag& cancelled) {
    const std::string part = part_of(route, request.path).value_or("");
    const bool for_anthropic = error_shape(request) == ErrorShape::anthropic;
    switch (route.id) {
      case Endpoint::page: return page(request.path);
      case Endpoint::live: return {.body = R"({"status":"alive"})"};
      case Endpoint::health: return health();
      case Endpoint::ready: model(true); return {.body = R"({"status":"ready"})"};
      case Endpoint::version: return {.body = dump({{"version", state_->options.version}})};
      case Endpoint::metrics: return metrics();
      case Endpoint::openapi: return openapi();
      case Endpoint::props: return show_props(*model(false));
      case Endpoint::models:
        return for_anthropic ? anthropic::list_models(*model(false), loaded_s_) : list_models(*model(false), loaded_s_);
      case Endpoint::model:
        return for_anthropic ? anthropic::show_model(*model(false), part, loaded_s_)
                             : show_model(*model(false), part, loaded_s_);
      case Endpoint::response: return responses::show_response(*state_->responses, request, part);
      case Endpoint::delete_response: return responses::delete_response(*state_->responses, request, part);
      case Endpoint::input_items: return responses::list_input_items(*state_->responses, request, part);
      case Endpoint::cancel_response: return responses::cancel_response(*state_->responses, request, part);
      case Endpoint::count_tokens:
        check_content_type(request);
        return anthropic::count_tokens(*model(false), request.body, &cancelled);
      case Endpoint::integrity: return integrity();
      case Endpoint::apply_template:
        check_content_type(request);
        return apply_template(*model(false), request.body, &cancelled);
      case Endpoint::tokenize: check_content_type(request); return tokenize(*model(false), request.body, &cancelled);
      default: check_content_type(request); return detokenize(*model(false), request.body, &cancelled);
    }
  }

  // 200 as soon as a request would be served. A device that fails step after step (a lost GPU, say) does not come back
  // by itself: whoever watches may start anew.
  HttpReply health() const {
    check_failure();
    const auto model = model_or_null();
    if (!model) {
      const double progress = state_->options.load_progress ? state_->options.load_progress() : 0;
      return {.status = 503,
              .body = dump({{"status", "loading"}, {"progress", std::round(progress * 1000) / 1000}}),
              .headers = {{"Retry-After", "1"}}};
    }
    const LlmStats stats = model->generator().stats();
    if (stats.failed_in_a_row >= kFailuresInARow)
      throw ApiError(503, fmt::format("the last {} steps failed: {}", stats.failed_in_a_row, stats.failure), "",
                     "device_failed");
    return {.body = R"({"status":"ok"})"};
  }

  HttpReply page(std::string_view path) const {
    const std::vector<WebFile>& files = state_->options.web;
    const auto file = std::ranges::find(files, path, &WebFile::path);
    if (file == files.end()) throw ApiError(404, "this server has no chat page", "", "not_found");
    HttpReply reply{
        .content_type = std::string(file->content_type),
        .body = std::string(file->text),
        .headers = {{"Cache-Control", file->versioned ? "private, max-age=31536000, immutable" : "no-cache"}}};
    if (!state_->options.page_policy.empty())
      reply.headers.emplace_back("Content-Security-Policy", state_->options.page_policy);
    return reply;
  }

  HttpReply openapi() const {
    const auto model = model_or_null();
    const std::vector<RouteInfo> routes(kRoutes.begin(), kRoutes.end() - (state_->options.debug_endpoints ? 0 : 1));
    return {.body = openapi_json(routes, state_->options.version,
                                 model ? model->request_limits() : state_->options.limits)};
  }

  HttpReply integrity() const {
    if (!state_->options.debug_endpoints) throw ApiError(404, "there is nothing at /debug/integrity", "", "not_found");
    return {.body = dump({{"faults", model(false)->generator().check_integrity()}})};
  }

  HttpReply metrics() const {
    MetricsInfo info{.version = state_->options.version,
                     .cache_labels = state_->options.cache_labels,
                     .start_time_s = static_cast<double>(started_s_),
                     .log_dropped = state_->options.log_dropped ? state_->options.log_dropped() : 0};
    std::optional<LlmStats> stats;
    if (const auto model = model_or_null()) {
      stats = model->generator().stats();
      info.model_name = model->name();
      info.device = model->generator().device_description();
      info.block_size = model->generator().limits().block_size;
      info.num_blocks = model->generator().limits().num_blocks;
    }
    return {.content_type = std::string(kMetricsType),
            .body = format_metrics(info, stats ? &*stats : nullptr, state_->counts.snapshot())};
  }

  CompletionRequest parse(const HttpRequest& http, Endpoint endpoint, const RequestLimits& limits,
                          const CancelFlag* cancelled) const {
    switch (endpoint) {
      case Endpoint::chat: return parse_chat_request(http.body, limits, cancelled);
      case Endpoint::responses:
        return responses::parse_request(http.body, limits, cancelled, state_->responses, http.tenant);
      case Endpoint::infill: return parse_infill_request(http.body, limits, cancelled);
      case Endpoint::messages: return anthropic::parse_request(http.body, limits, cancelled);
      default: return parse_completion_request(http.body, limits, cancelled);
    }
  }

  void start_call(const std::shared_ptr<Exchange>& exchange, Endpoint endpoint, const CancelFlag& cancelled,
                  RequestTrace& trace, std::shared_ptr<Call>& call) {
    const auto arrival = std::chrono::steady_clock::now();
    const HttpRequest& http = exchange->request();
    check_content_type(http);
    const std::shared_ptr<const ServedModel> served = model(true);
    const RequestLimits& limits = served->request_limits();
    CompletionRequest request = parse(http, endpoint, limits, &cancelled);
    const bool chat = request.chat.has_value();
    served->check_name(request.model);
    trace.record().model = request.model.empty() ? served->name() : request.model;
    if (request.generation.priority != 0 && !state_->options.priority_scheduling)
      fail("priority", "unsupported_parameter",
           "is not taken from requests: start the server with --priority-scheduling");
    const OutputOptions output = request.output;
    std::optional<ChatReading> reading = served->reading(request);
    served->end_infill(request);
    served->tokenize_bad_words(request.generation, &cancelled);
    AnswerContext context{.id = request.id_prefix + http.id,
                          .created = state_->now_s(),
                          .model = trace.record().model,
                          .fingerprint = served->fingerprint(),
                          .output = output,
                          .names = {served->generator().tokenizer(), output.tokens_as_ids},
                          .skip_special = request.generation.skip_special_tokens,
                          .n = request.generation.n,
                          .prompts = served->prompts(request, &cancelled),
                          .reading = std::move(reading),
                          .request_id = http.id};
    if (context.reading) context.reading->options.in_reasoning = context.prompts.at(0).in_reasoning;
    if (chat) served->hold_answer(request, context.prompts.at(0).in_reasoning);
    request.generation.structured.cache_salt = cache_salt(http, request.generation.cache_salt);
    served->generator().compile(request.generation.structured, &cancelled);
    std::vector<int64_t> lengths;
    for (const PromptTokens& prompt : context.prompts)
      lengths.push_back(new_tokens(*served, request, prompt.ids.size()));
    AnswerSize size = estimate_answer(context, request.generation, chat, lengths);
    if (!request.max_tokens && size.bytes > size.fixed) {  // nobody asked for all that the context would hold
      const auto most = static_cast<uint64_t>(limits.max_answer_bytes);
      const uint64_t each = std::max<uint64_t>(1, (size.bytes - size.fixed) / static_cast<uint64_t>(lengths[0]));
      if (size.bytes > most)
        lengths[0] = static_cast<int64_t>(std::max<uint64_t>(1, (most - std::min(most, size.fixed)) / each));
      size = estimate_answer(context, request.generation, chat, lengths);
    }
    served->check_answer(size.param, size.bytes);

    std::vector<GenerationRequest> requests;
    for (size_t i = 0; i < context.prompts.size(); ++i) {
      GenerationRequest one = request.generation;
      one.prompt = context.prompts[i].ids;
      one.max_tokens = lengths[i];
      requests.push_back(std::move(one));
    }
    address(requests, *served, http, arrival);
    if (!output.token_ids)
      for (PromptTokens& prompt : context.prompts) prompt.ids = {};
    std::unique_ptr<AnswerWriter> writer = request.make_writer(std::move(context));
    call = std::make_shared<Call>(state_, served, exchange, std::move(trace), std::move(writer), output);
    call->start(std::move(requests));
  }

  void start_pooling(const std::shared_ptr<Exchange>& exchange, decltype(embeddings)* prepare,
                     const CancelFlag& cancelled, RequestTrace& trace, std::shared_ptr<Call>& call) {
    const auto arrival = std::chrono::steady_clock::now();
    const HttpRequest& http = exchange->request();
    check_content_type(http);
    const std::shared_ptr<const ServedModel> served = model(true);
    PoolingCall prepared = prepare(*served, http.body, http.id, &cancelled);
    trace.record().model = prepared.model;
    address(prepared.requests, *served, http, arrival);
    call =
        std::make_shared<Call>(state_, served, exchange, std::move(trace), std::move(prepared.writer), OutputOptions{});
    call->start(std::move(prepared.requests));
  }

  // Whose they are, and until when they are wanted.
  void address(std::vector<GenerationRequest>& requests, const ServedModel& served, const HttpRequest& http,
               std::chrono::steady_clock::time_point arrival) const {
    for (size_t i = 0; i < requests.size(); ++i) {
      GenerationRequest& one = requests[i];
      one.id = requests.size() == 1 ? http.id : fmt::format("{}-{}", http.id, i);
      one.client = http.client;
      one.cache_salt = cache_salt(http, one.cache_salt);
      one.shared_tokens = one.cache_salt.empty() ? 0 : served.shared_tokens(one.prompt);
      if (state_->options.request_timeout.count() > 0) one.deadline = arrival + state_->options.request_timeout;
    }
  }

  // A request's own salt is added to that of its key, never put in its place.
  std::string cache_salt(const HttpRequest& http, const std::string& asked) const {
    const std::string tenant = state_->options.share_prefixes ? "" : http.tenant;
    return tenant.empty() && asked.empty() ? "" : tenant + "\n" + asked;
  }

  int64_t new_tokens(const ServedModel& served, const CompletionRequest& request, size_t prompt) const {
    const int64_t room = served.context() - static_cast<int64_t>(prompt);
    int64_t most = std::min(request.max_tokens.value_or(room), room);
    if (state_->options.max_tokens > 0) most = std::min(most, state_->options.max_tokens);
    return most;
  }

  const std::shared_ptr<ApiState> state_;
  const int64_t started_s_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
  std::atomic<int64_t> loaded_s_{0};
};

}  // namespace

std::shared_ptr<Api> make_api(ApiOptions options) { return std::make_shared<ApiImpl>(std::move(options)); }

Handler make_handler(std::shared_ptr<Api> api) {
  return [api = std::move(api)](std::shared_ptr<Exchange> exchange) { api->handle(std::move(exchange)); };
}

std::string default_model_name(const std::string& model_path) {
  std::filesystem::path path(model_path);
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  // The hub's cache: .../models--OWNER--NAME/snapshots/COMMIT
  if (const auto snapshots = path.parent_path(); snapshots.filename() == "snapshots") {
    const std::string folder = snapshots.parent_path().filename().string();
    const size_t dashes = folder.find("--", 8);
    if (folder.starts_with("models--") && dashes != std::string::npos)
      return folder.substr(8, dashes - 8) + "/" + folder.substr(dashes + 2);
  }
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

}  // namespace ingot::server::openai
