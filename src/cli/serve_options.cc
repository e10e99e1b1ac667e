#include "cli/serve_options.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "server/openai/limits.h"
#include "text/dialects/dialect.h"

namespace ingot::cli {
namespace {

// A flag that may be given several times, one value each.
Option add_repeatable(Options command, const char* name, std::vector<std::string>& values, const char* help) {
  return command.option(name, values, help).one_value_each();
}

Option add_seconds(Options command, const char* name, double& value, const char* help) {
  return command.option(name, value, help).show_default().range(0.0, 1e6).type_name("SECONDS");
}

// Bytes, also as 16MiB or 1G.
Option add_bytes(Options command, const char* name, uint64_t& value, const char* help) {
  return command.option(name, value, help).show_default().bytes();
}

// NAME=VALUE, with the names there are and what they are set to.
std::string limit_help() {
  std::string text = "NAME=VALUE, of one request; repeatable:";
  for (const server::openai::LimitInfo& limit : server::openai::limit_table())
    text += fmt::format(" {} ({}),", limit.name, server::openai::RequestLimits().*limit.value);
  text.back() = '.';
  return text + " Over it: 400";
}

}  // namespace

void add_serve_options(Options command, ServeArgs& args) {
  command.heading("Model and engine");
  add_engine_options(command, args.model);
  add_model_argument(command, args.model);
  command.option("--chat-template", args.chat_template, "file with a Jinja chat template; default: the model's own")
      .existing_file();
  command.option("--tool-format", args.tool_format, "how the model writes tool calls; default: as its template says")
      .one_of(dialect_names());

  add_pooling_options(command, args.model);

  command.heading("Server");
  command.option("--host", args.host, "address to listen on; 0.0.0.0 or :: for all").show_default();
  command.option("--port", args.port, "0: any free one").show_default();
  add_repeatable(
      command, "--served-model-name", args.served_names,
      "what clients call the model; repeatable, the first is written into answers. Default: from the file's name");
  command.flag("--no-web", args.no_web, "no chat page at /");
  command.option("--log-format", args.log_format, "text (key=value) or json, one line a request, on stderr")
      .show_default()
      .one_of({"text", "json"});
  command.flag("--log-probes", args.log_probes, "log successful /live, /health, /ready and /metrics requests too");

  command
      .option("--restart", args.restart,
              "start the server in a process of its own, with --tp its ranks by mpirun, and start it again when it "
              "ends by a fault, at most so many times an hour; 0: neither")
      .show_default()
      .range(0, 1000);
  command.option("--mpirun", args.mpirun, "how --restart calls mpirun, with its options, such as --host a,b")
      .show_default()
      .not_empty()
      .type_name("COMMAND");
  command.flag("--debug-endpoints", args.debug_endpoints, "serve GET /debug/integrity, a self-check between two steps");

  command.heading("Access");
  add_repeatable(
      command, "--api-key", args.api_keys,
      "key for `Authorization: Bearer KEY`; repeatable. Other users of this machine can see flags: prefer a file");
  command.option("--api-key-file", args.api_key_file, "file with one key a line; # begins a comment");
  command.option("--tls-cert", args.tls_certificate, "PEM file: certificate and chain; makes it https");
  command.option("--tls-key", args.tls_key, "PEM file: its private key");
  add_repeatable(command, "--cors-origin", args.cors_origins,
                 "web origin that may call from a browser, such as https://example.com, or *; repeatable");
  add_repeatable(
      command, "--allowed-host", args.allowed_hosts,
      "name that clients may call this server by, or *; repeatable. Without keys only loopback names, addresses "
      "and this machine's names are served");
  command.flag("--share-prefixes", args.share_prefixes,
               "holders of different keys share the prefix cache; by default what one sent never shows to another");
  add_repeatable(command, "--shared-prefix", args.shared_prefixes,
                 "file with a system prompt or other beginning that all share in the prefix cache; repeatable");

  command.heading("Limits");
  add_bytes(command, "--max-request-bytes", args.max_request_bytes, "largest request body; over it: 413");
  command.option("--max-connections", args.max_connections, "over it: 503").show_default().range(1, 1 << 20);
  add_repeatable(command, "--limit", args.limits, limit_help().c_str());
  command.option("--stored-responses", args.stored.responses, "of /v1/responses, the last that can be gone on with")
      .show_default()
      .non_negative();
  add_bytes(command, "--stored-response-bytes", args.stored.bytes, "of all of them");
  add_seconds(command, "--request-timeout", args.request_timeout, "a request ends with what it has by then; 0: none");
  add_seconds(command, "--head-timeout", args.head_timeout, "for the head of a request");
  add_seconds(command, "--body-timeout", args.body_timeout, "for its body, and a second more for each 64 KiB");
  add_seconds(command, "--idle-timeout", args.idle_timeout, "a connection may stay open between two requests");
  add_seconds(command, "--write-timeout", args.write_timeout, "a client that reads nothing for this long is dropped");
  add_seconds(command, "--drain-timeout", args.drain_timeout, "running requests may take after SIGTERM or SIGINT");

  command.heading("Scheduling");
  command
      .option("--tune", args.tune,
              "idle: while there are no requests a GPU times its ways of computing products, keeps the fastest and "
              "remembers them; off: it takes what it remembers")
      .show_default()
      .one_of({"idle", "off"});
  command.option("--max-seqs", args.model.engine.max_seqs, "sequences that run at a time")
      .show_default()
      .range(1, 4096);
  command.option("--max-waiting", args.max_waiting, "requests that wait for their turn; over it: 503")
      .show_default()
      .non_negative();
  command
      .option("--target-step-ms", args.target_step_ms,
              "longest step while streams are running; 0: 1.6 times one without prefill")
      .show_default()
      .non_negative();
  command.flag("--no-prefix-caching", args.no_prefix_caching, "do not reuse the KV blocks of equal prompt beginnings");
  add_prefix_options(command, args.prefix);
  add_speculation_options(command, args.speculation);
  command.flag("--priority-scheduling", args.priority_scheduling,
               "take `priority` from requests: lower runs first. Otherwise clients take turns");
  add_bytes(command, "--min-free-memory", args.min_free_memory, "new requests get 503 while the system has less free");
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace ingot::cli
