#include "hub/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "hub/file_hash.h"

namespace ingot::hub {
namespace {

// W/"abc" -> abc
std::string unquoted(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  std::erase(tag, '"');
  return tag;
}

uint64_t parse_size(const std::string& text) {
  uint64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  return error == std::errc() && end == text.data() + text.size() ? size : UINT64_MAX;
}

FetchReply send_patiently(HttpClient& client, const FetchRequest& request, const std::string& what,
                          const Patience& patience, int contact_attempts) {
  for (int attempt = 0;; ++attempt) {
    FetchReply answer = client.send(request);
    const int most = answer.status == 0 ? contact_attempts : kAttempts;
    const bool stopped = patience.stop != nullptr && *patience.stop;
    if (!is_passing(answer) || attempt + 1 >= most || stopped) return answer;
    wait_before_retry(answer, attempt, what, patience);
  }
}

}  // namespace

std::string file_url(const HubSettings& settings, const ModelName& name, const std::string& commit,
                     const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, name.repo, commit, url_encode(path, true));
}

bool is_passing(const FetchReply& answer) {
  if (answer.hopeless) return false;
  const int status = answer.status;
  // An address signed for the storage expires; the next attempt begins at the hub and gets a new one.
  if (answer.redirected && status >= 400) return true;
  return status == 0 || status == 408 || status == 429 || status >= 500 ||
         (status >= 200 && status <= 299 && !answer.failure.empty());
}

void wait_before_retry(const FetchReply& answer, int attempt, const std::string& what, const Patience& patience) {
  using namespace std::chrono;
  constexpr milliseconds kLongest = 60s;
  constexpr milliseconds kWorthANote = 2s;
  milliseconds wait(500 << std::min(attempt, 6));
  if (const uint64_t asked = parse_size(answer.header("retry-after")); asked < 3600)
    wait = std::max<milliseconds>(seconds(asked), 100ms);
  wait = std::min(wait, kLongest);
  if (patience.note && wait >= kWorthANote)
    patience.note(
        fmt::format("{}: {}; trying again in {} s", what,
                    answer.failure.empty() ? fmt::format("the hub answered {}", answer.status) : answer.failure,
                    ceil<seconds>(wait).count()));
  for (const auto end = steady_clock::now() + wait; steady_clock::now() < end;) {
    if (patience.stop != nullptr && *patience.stop) return;
    std::this_thread::sleep_for(std::min<nanoseconds>(100ms, end - steady_clock::now()));
  }
}

void throw_for(const FetchReply& answer, const HubSettings& settings, const ModelName& name, const std::string& what) {
  const std::string code = answer.header("x-error-code");
  const std::string page = settings.endpoint + "/" + name.repo;
  const bool has_token = !settings.token.empty();
  const bool whole = what == name.text();  // else one of its files
  if (!answer.failure.empty())
    throw_error(ErrorKind::io, "{}: {} {}: {}; {}", what,
                whole ? "is no file or folder here, and cannot be fetched from" : "cannot be fetched from",
                settings.endpoint, answer.failure,
                answer.hopeless ? "check HF_ENDPOINT, and SSL_CERT_FILE where certificates of your own are needed"
                : whole         ? "check the name and the connection"
                                : "check the connection and try again, what came so far is kept");
  if (answer.redirected)
    throw_error(ErrorKind::io, "{}: {}, where {} keeps it, answered {}; try again later, what came so far is kept",
                what, origin_of(answer.url), settings.endpoint, answer.status);
  if (code == "GatedRepo" || (answer.status == 403 && code != "RepoNotFound"))
    throw_error(ErrorKind::io, "{}: is gated: accept its terms at {}{}", what, page,
                has_token ? " with the account HF_TOKEN belongs to" : ", then set HF_TOKEN to a token of that account");
  if (answer.status == 401)
    throw_error(
        ErrorKind::io, "{}: {}", what,
        has_token ? "the hub does not accept the token for it; check the name, and HF_TOKEN or the token file"
                  : "is no file or folder here, and not on the hub or private there; check the name, or set HF_TOKEN");
  if (code == "RevisionNotFound")
    throw_error(ErrorKind::bad_call, "{}: {} has no revision {}; see {}", what, name.repo, name.revision, page);
  if (answer.status == 404 && !whole)
    throw_error(ErrorKind::io, "{}: the hub lists it but does not have it (404); try again later", what);
  if (answer.status == 404)
    throw_error(ErrorKind::bad_call, "{}: is no file or folder here, and not on the hub at {}; check the name", what,
                settings.endpoint);
  if (answer.status == 429)
    throw_error(ErrorKind::io, "{}: the hub asks to wait (429){}; try again later", what,
                has_token ? "" : ", which a token (HF_TOKEN) makes rarer");
  throw_error(ErrorKind::io, "{}: {} answered {}; try again later", what, settings.endpoint, answer.status);
}

Listing list_remote(HttpClient& client, const HubSettings& settings, const ModelName& name, const Patience& patience) {
  FetchRequest request;
  request.url =
      fmt::format("{}/api/models/{}/revision/{}", settings.endpoint, name.repo, url_encode(name.revision, false));
  request.token = settings.token;
  request.ca_file = settings.ca_file;
  request.stall_s = settings.stall_s;
  const FetchReply answer = send_patiently(client, request, name.text(), patience, kFirstContactAttempts);
  if (answer.status != 200 || !answer.failure.empty()) throw_for(answer, settings, name, name.text());
  const auto broken = [&](const char* what) {
    throw_error(ErrorKind::bad_file, "{}: the listing from {} {}; is HF_ENDPOINT a hub?", name.text(),
                settings.endpoint, what);
  };
  nlohmann::json root;
  try {
    root = parse_json(answer.body, "the listing");
  } catch (const JsonError&) {
    broken("is not what a hub sends");
  }
  if (!root.is_object() || !root.contains("sha") || !root["sha"].is_string() || !root.contains("siblings") ||
      !root["siblings"].is_array())
    broken("is not what a hub sends");
  Listing listing{.commit = root["sha"].get<std::string>()};
  if (!is_commit(listing.commit)) broken("names no commit");
  for (const nlohmann::json& file : root["siblings"]) {
    if (!file.is_object() || !file.contains("rfilename") || !file["rfilename"].is_string())
      broken("has a file without a name");
    const std::string path = file["rfilename"].get<std::string>();
    if (!is_safe_relative_path(path)) broken("has a file name that leads out of the folder");
    listing.files.push_back(path);
  }
  return listing;
}

RemoteFile stat_remote(HttpClient& client, const HubSettings& settings, const ModelName& name,
                       const std::string& commit, const std::string& path, const Patience& patience) {
  const std::string what = fmt::format("{}: {}", name.text(), path);
  FetchRequest request;
  request.url = file_url(settings, name, commit, path);
  request.head = true;
  request.token = settings.token;
  request.ca_file = settings.ca_file;
  request.stall_s = settings.stall_s;
  // The hub's own answer has the hash; the storage it redirects to has other tags.
  const FetchReply answer = send_patiently(client, request, what, patience, kAttempts);
  if (answer.status < 200 || answer.status > 399 || !answer.failure.empty()) throw_for(answer, settings, name, what);
  RemoteFile file{.path = path};
  const std::string linked = answer.header("x-linked-etag");
  file.hash = unquoted(linked.empty() ? answer.header("etag") : linked);
  if (!is_content_hash(file.hash))
    throw_error(ErrorKind::bad_file, "{}: {} gives no hash to check it by; is HF_ENDPOINT a hub?", what,
                settings.endpoint);
  const std::string linked_size = answer.header("x-linked-size");
  file.size = parse_size(linked_size.empty() ? answer.header("content-length") : linked_size);
  if (file.size == UINT64_MAX)
    throw_error(ErrorKind::bad_file, "{}: {} gives no size for it; is HF_ENDPOINT a hub?", what, settings.endpoint);
  return file;
}

}  // namespace ingot::hub
