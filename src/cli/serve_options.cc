#include "cli/serve_options.h"

#include "cli/options.h"

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

}  // namespace

void add_serve_options(Options command, ServeArgs& args) {
  add_engine_options(command, args.model);
  command.group_options("Model and engine");
  command.option("--chat-template", args.chat_template, "file with a Jinja chat template; default: the model's own")
      .existing_file()
      .group("Model and engine");

  const char* group = "Server";
  command.option("--host", args.host, "address to listen on; 0.0.0.0 or :: for all").show_default().group(group);
  command.option("--port", args.port, "0: any free one").show_default().group(group);
  add_repeatable(
      command, "--served-model-name", args.served_names,
      "what clients call the model; repeatable, the first is written into answers. Default: from the file's name")
      .group(group);
  command.flag("--no-web", args.no_web, "no chat page at /").group(group);
  command.option("--log-format", args.log_format, "text (key=value) or json, one line a request, on stderr")
      .show_default()
      .one_of({"text", "json"})
      .group(group);
  command.flag("--log-probes", args.log_probes, "log successful /health, /ready and /metrics requests too")
      .group(group);

  command.flag("--debug-endpoints", args.debug_endpoints, "serve GET /debug/integrity, a self-check between two steps")
      .group(group);

  group = "Access";
  add_repeatable(
      command, "--api-key", args.api_keys,
      "key for `Authorization: Bearer KEY`; repeatable. Other users of this machine can see flags: prefer a file")
      .group(group);
  command.option("--api-key-file", args.api_key_file, "file with one key a line; # begins a comment").group(group);
  command.option("--tls-cert", args.tls_certificate, "PEM file: certificate and chain; makes it https").group(group);
  command.option("--tls-key", args.tls_key, "PEM file: its private key").group(group);
  add_repeatable(command, "--cors-origin", args.cors_origins,
                 "web origin that may call from a browser, such as https://example.com, or *; repeatable")
      .group(group);

  group = "Limits";
  add_bytes(command, "--max-request-bytes", args.max_request_bytes, "largest request body; over it: 413").group(group);
  command.option("--max-connections", args.max_connections, "over it: 503")
      .show_default()
      .range(uint64_t{1}, uint64_t{1} << 20)
      .group(group);
  add_seconds(command, "--request-timeout", args.request_timeout, "a request ends with what it has by then; 0: none")
      .group(group);
  add_seconds(command, "--head-timeout", args.head_timeout, "for the head of a request").group(group);
  add_seconds(command, "--body-timeout", args.body_timeout, "for its body, and a second more for each 64 KiB")
      .group(group);
  add_seconds(command, "--idle-timeout", args.idle_timeout, "a connection may stay open between two requests")
      .group(group);
  add_seconds(command, "--write-timeout", args.write_timeout, "a client that reads nothing for this long is dropped")
      .group(group);
  add_seconds(command, "--drain-timeout", args.drain_timeout, "running requests may take after SIGTERM or SIGINT")
      .group(group);

  group = "Scheduling";
  command.option("--max-seqs", args.model.engine.max_seqs, "sequences that run at a time")
      .show_default()
      .range(1, 4096)
      .group(group);
  command.option("--max-waiting", args.max_waiting, "requests that wait for their turn; over it: 503")
      .show_default()
      .non_negative()
      .group(group);
  command
      .option("--target-step-ms", args.target_step_ms,
              "longest step while streams are running; 0: 1.6 times one without prefill")
      .show_default()
      .non_negative()
      .group(group);
  command.flag("--no-prefix-caching", args.no_prefix_caching, "do not reuse the KV blocks of equal prompt beginnings")
      .group(group);
  add_bytes(command, "--min-free-memory", args.min_free_memory, "new requests get 503 while the system has less free")
      .group(group);
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace ingot::cli
