#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/common.h"
#include "cli/options.h"
#include "cli/restart.h"
#include "cli/serve_options.h"
#include "cli/stop_signals.h"
#include "collective/lost_rank.h"
#include "core/error.h"
#include "core/heap.h"
#include "ingot/llm.h"
#include "server/http_server.h"
#include "server/log_writer.h"
#include "server/openai/api.h"
#include "server/web/page.h"

namespace ingot::cli {
namespace {

using namespace std::chrono_literals;
using server::HttpServer;
using server::HttpServerOptions;

// The log on stderr: a line a request, and what the server says about itself in the same format.
class Log {
 public:
  explicit Log(bool json)
      : json_(json), writer_(STDERR_FILENO, [this](uint64_t dropped) {
          return event_line("log_dropped",
                            fmt::format("{} lines of the log were dropped: they were not read", dropped));
        }) {}
  void write(std::string_view line) { writer_.write(line); }
  void event(std::string_view event, std::string_view message) { writer_.write(event_line(event, message)); }
  uint64_t dropped() const { return writer_.dropped(); }

 private:
  std::string event_line(std::string_view event, std::string_view message) const {
    if (!json_) return fmt::format("ingot: {}", message);
    return nlohmann::ordered_json{{"event", event}, {"message", message}}.dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  const bool json_;
  server::LogWriter writer_;
};

// Every connection is a file; the usual soft limit of 1024 is not enough for as many.
void allow_files(uint64_t connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, connections + 256);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

LlmOptions llm_options(const ServeArgs& args) {
  LlmOptions options;
  options.engine = args.model.engine;
  options.engine.model = resolve_model(args.model.model);
  options.max_waiting = args.max_waiting;
  options.target_step_ms = args.target_step_ms;
  options.tune = args.tune == "idle";
  options.prefix_caching = !args.no_prefix_caching;
  args.prefix.apply(options);
  options.min_free_memory = args.min_free_memory;
  set_speculation(args.speculation, options);
  return options;
}

server::openai::ApiOptions api_options(const ServeArgs& args, const std::string& model, Log& log) {
  server::openai::ApiOptions options;
  options.served_names = args.served_names;
  if (options.served_names.empty()) options.served_names = {server::openai::default_model_name(model)};
  options.version = INGOT_VERSION;
  if (!args.chat_template.empty()) options.chat_template = read_file(args.chat_template);
  options.tool_format = args.tool_format;
  if (!args.no_web) {
    options.web = server::chat_page();
    options.page_policy = server::chat_page_csp();
  }
  options.cache_labels = {{"cache_dtype", args.model.engine.kv_dtype},
                          {"enable_prefix_caching", args.no_prefix_caching ? "False" : "True"}};
  for (const std::string& limit : args.limits) set_limit(options.limits, limit);
  options.stored = args.stored;
  options.priority_scheduling = args.priority_scheduling;
  options.share_prefixes = args.share_prefixes;
  for (const std::string& file : args.shared_prefixes) options.shared_prefixes.push_back(read_file(file));
  options.request_timeout = to_milliseconds(args.request_timeout);
  options.log = [&log](std::string_view line) { log.write(line); };
  options.log_dropped = [&log] { return log.dropped(); };
  options.log_format = args.log_format == "json" ? server::LogFormat::json : server::LogFormat::text;
  options.log_probes = args.log_probes;
  options.debug_endpoints = args.debug_endpoints;
  return options;
}

HttpServerOptions http_options(const ServeArgs& args, server::openai::Api& api, Log& log) {
  HttpServerOptions options;
  options.host = args.host;
  options.port = args.port;
  options.limits.body_bytes = args.max_request_bytes;
  options.limits.buffered_bytes = std::max<uint64_t>(options.limits.buffered_bytes, 4 * args.max_request_bytes);
  options.limits.connections = args.max_connections;
  options.limits.head_time = to_milliseconds(args.head_timeout);
  options.limits.body_time = to_milliseconds(args.body_timeout);
  options.limits.idle_time = to_milliseconds(args.idle_timeout);
  options.limits.write_time = to_milliseconds(args.write_timeout);
  options.tls_certificate = args.tls_certificate;
  options.tls_key = args.tls_key;
  options.cors_origins = args.cors_origins;
  options.allowed_hosts = args.allowed_hosts;
  options.api_keys = args.api_keys;
  options.api_key_file = args.api_key_file;
  options.refused = [&api](const server::HttpRequest& request, int status, std::string_view error) {
    api.record(request, status, error);
  };
  options.log = [&log](std::string_view line) { log.event("transport", line); };
  return options;
}

void announce(const ServeArgs& args, const HttpServer& http, const std::string& name, const Llm& llm, Log& log) {
  const EngineLimits& limits = llm.limits();
  log.event("serving",
            fmt::format("serving {} at {} on {}; KV cache of {} tokens ({} blocks), context {}, {} sequences", name,
                        http.url(), llm.device_description(), limits.num_blocks * limits.block_size, limits.num_blocks,
                        limits.max_model_len, limits.max_seqs));
  const bool local =
      args.host.starts_with("127.") || args.host == "localhost" || args.host == "::1" || args.host == "[::1]";
  if (!local && args.api_keys.empty() && args.api_key_file.empty())
    log.event("warning", "everyone who can reach this address may use the server: consider --api-key-file");
}

// The first signal drains: what runs may finish, new requests get 503. The second, or the end of the time, cuts it.
void drain(HttpServer& http, server::openai::Api& api, StopSignals& signals, double seconds, Log& log) {
  log.event("draining", fmt::format("draining {} requests for up to {} s; another signal stops at once",
                                    http.stats().exchanges, seconds));
  api.drain();
  http.begin_drain();
  const auto until = std::chrono::steady_clock::now() + to_milliseconds(seconds);
  while (!http.wait_drained(20ms) && !signals.wait(0ms) && std::chrono::steady_clock::now() < until) {
  }
  const size_t left = http.stats().exchanges;
  log.event("stopped", left == 0 ? "stopped" : fmt::format("stopped, with {} requests cut off", left));
}

// While it lives, requests that run when a rank is lost end with an error, and /health says which it was.
class Farewell {
 public:
  Farewell(HttpServer& http, server::openai::Api& api) {
    on_lost_rank([&http, &api](const std::string& what) {
      const auto least = std::chrono::steady_clock::now() + kLeast;
      api.give_up(what);
      http.wait_drained(kMost);
      std::this_thread::sleep_until(least);  // for those who ask after its health
    });
  }
  ~Farewell() { on_lost_rank({}); }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLeast{500};
  static constexpr std::chrono::milliseconds kMost{1200};  // for clients to be told, on a busy machine
};

void serve(const ServeArgs& args) {
  const int ranks = args.model.engine.ranks();
  if (args.restart > 0) return supervise({.ranks = ranks, .mpirun = args.mpirun, .most = args.restart});
  if (followed_rank_0(args.model)) return;
  return_large_blocks();
  StopSignals signals(ranks > 1);
  LlmOptions options = llm_options(args);
  Log log(args.log_format == "json");
  options.warn = [&log](const std::string& line) { log.event("warning", line); };
  allow_files(args.max_connections);

  // Each uses those before it, and is gone before them.
  std::unique_ptr<Llm> llm;
  std::atomic<double> progress{0};
  options.engine.progress = [&progress](size_t done, size_t total) {
    progress = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  };
  server::openai::ApiOptions api_settings = api_options(args, options.engine.model, log);
  api_settings.load_progress = [&progress] { return progress.load(); };
  const std::shared_ptr<server::openai::Api> api = server::openai::make_api(api_settings);
  HttpServer http(http_options(args, *api, log), server::openai::make_handler(api));

  const Farewell farewell(http, *api);

  // Listening first: a port that is taken shows before a large model is loaded, and /health says how far it is.
  http.start();
  llm = load_llm(options);
  api->attach(*llm);
  signals.begin_counting();
  announce(args, http, api_settings.served_names.front(), *llm, log);
  signals.wait(-1ms);
  if (signals.number() != SIGUSR1) doubt_ranks();
  drain(http, *api, signals, args.drain_timeout, log);
  http.stop();
}

}  // namespace

void add_serve(Program& program) {
  auto [command, args] =
      program.add_command("serve", "the OpenAI-compatible server, its metrics and the chat page", serve);
  add_serve_options(command, args);
  command.footer(
      "Every flag can stand in a file too (--config FILE), as `name = value` without the dashes; one that is "
      "repeatable\n"
      "on several lines or as a list [a, b]. SIGTERM and SIGINT let running requests finish; a second one stops at "
      "once.");
}

}  // namespace ingot::cli
