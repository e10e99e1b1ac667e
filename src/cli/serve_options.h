#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/common.h"
#include "server/responses/store.h"

namespace ingot::cli {

// The flags of `ingot serve`. Times are in seconds.
struct ServeArgs {
  ModelArgs model;

  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> served_names;
  bool no_web = false;
  std::string log_format = "text";
  bool log_probes = false;
  bool debug_endpoints = false;
  int32_t restart = 0;
  std::string mpirun = "mpirun";

  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string tls_certificate;
  std::string tls_key;
  std::vector<std::string> cors_origins;
  std::vector<std::string> allowed_hosts;
  bool share_prefixes = false;
  std::vector<std::string> shared_prefixes;

  uint64_t max_request_bytes = 16 << 20;
  uint64_t max_connections = 1024;
  std::vector<std::string> limits;
  server::responses::ResponseStore::Limits stored;
  double request_timeout = 0;
  double head_timeout = 10;
  double body_timeout = 60;
  double idle_timeout = 75;
  double write_timeout = 30;
  double drain_timeout = 30;

  int32_t max_waiting = 1024;
  double target_step_ms = 0;
  std::string tune = "idle";
  bool no_prefix_caching = false;
  PrefixArgs prefix;
  SpeculationArgs speculation;
  bool priority_scheduling = false;
  uint64_t min_free_memory = 128 << 20;
  std::string chat_template;
  std::string tool_format;
};

void add_serve_options(Options command, ServeArgs& args);

std::chrono::milliseconds to_milliseconds(double seconds);

}  // namespace ingot::cli
