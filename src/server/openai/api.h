#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cancel.h"
#include "ingot/llm.h"
#include "server/http.h"
#include "server/openai/limits.h"
#include "server/request_log.h"
#include "server/responses/store.h"
#include "server/web/page.h"

// The OpenAI-compatible API with vLLM's extensions, and Anthropic's: what the server says, whatever carries it.
// docs/server.md and docs/apis.md list endpoints and parameters.
//
//   auto api = make_api(llm, {.served_names = {"smollm2"}, .log = print_line});
//   HttpServer server(options, make_handler(api));
//   ... on SIGTERM: api->drain();
//
// To answer while the model still loads: make_api(options) first, attach(llm) later.
namespace ingot::server::openai {

struct ApiOptions {
  std::vector<std::string> served_names;     // what clients may call the model; the first is written into answers
  std::string version;                       // of the server, for /version and the fingerprint
  std::string chat_template;                 // Jinja source; empty: the model's own
  std::string tool_format;                   // how the model writes calls (text/dialects); empty: as its template says
  std::vector<WebFile> web;                  // the chat page at "/" and what it loads; empty: none
  std::string page_policy;                   // Content-Security-Policy of these
  bool priority_scheduling = false;          // take `priority` from requests
  bool share_prefixes = false;               // holders of different keys meet in the prefix cache
  std::vector<std::string> shared_prefixes;  // texts whose holders meet there in any case: system prompts, beginnings
  bool debug_endpoints = false;              // GET /debug/integrity: the orchestrator checks itself

  RequestLimits limits;                     // what does not follow from the model
  responses::ResponseStore::Limits stored;  // responses that can be asked for and gone on with later
  int64_t max_tokens = 0;  // new tokens a choice, whatever a request asks for; 0: as the context allows
  std::chrono::milliseconds request_timeout{0};  // from arrival; then a request ends with what it has. 0: none

  RequestLog::Sink log;  // one line a request, without line end; called by one thread at a time
  LogFormat log_format = LogFormat::text;
  bool log_probes = false;  // also log GET /live, /health, /ready and /metrics that were answered with 200
  std::function<uint64_t()> log_dropped;  // lines that the sink had to drop; empty: none

  std::function<double()> load_progress;  // of the model, 0 ... 1, until attach()

  std::vector<std::pair<std::string, std::string>> cache_labels;  // more labels of vllm:cache_config_info
  std::function<int64_t()> clock;                                 // seconds since 1970; empty: the system's
};

// What the API needs of an Llm; tests put a stand-in here.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual std::shared_ptr<Generation> submit(GenerationRequest request, std::function<void()> notify) = 0;
  virtual void compile(StructuredOutput&, const CancelFlag*) {}  // Llm::compile()
  virtual void drain() = 0;
  virtual double retry_after_s() const = 0;
  virtual LlmStats stats() const = 0;
  virtual const EngineLimits& limits() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // may be null: then only token ids are served
  virtual std::string device_description() const = 0;
  virtual const ModelInfo& model_info() const = 0;
  virtual std::vector<std::string> check_integrity() { return {}; }
};

// All methods may be called from any thread.
class Api {
 public:
  virtual ~Api() = default;  // cancels what is running; call after the transport has stopped, before the Llm goes

  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The model is there: from now on requests are served. Throws Error when its chat template is broken.
  virtual void attach(std::shared_ptr<Generator> generator) = 0;
  // New requests get 503, /ready too; running ones finish.
  virtual void drain() = 0;
  // The model runs no more steps, and the process is about to end: requests under way end with this error, new ones and
  // /health get it too. Waits for no step.
  virtual void give_up(const std::string& why) = 0;
  // Logs and counts a request that the transport answered itself (401, 413, ...).
  virtual void record(const HttpRequest& request, int status, std::string_view error) = 0;

  void attach(Llm& llm);
};

std::shared_ptr<Api> make_api(ApiOptions options);
std::shared_ptr<Api> make_api(Llm& llm, ApiOptions options);
Handler make_handler(std::shared_ptr<Api> api);

// The name a model is served under unless told otherwise: the file's stem, or the folder's name.
std::string default_model_name(const std::string& model_path);

}  // namespace ingot::server::openai
