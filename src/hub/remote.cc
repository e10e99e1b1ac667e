#include "hub/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
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

}  // namespace

std::string file_url(const HubSettings& settings, const ModelName& name, const std::string& commit,
                     const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, name.repo, commit, url_encode(path, true));
}

bool is_passing(const HttpAnswer& answer) {
  const int status = answer.status;
  return status == 0 || status == 408 || status == 429 || status >= 500 ||
         (status >= 200 && status <= 299 && !answer.failure.empty());
}

void wait_before_retry(const HttpAnswer& answer, int attempt) {
  constexpr uint64_t kLongestMs = 60000;
  uint64_t ms = uint64_t{500} << std::min(attempt, 6);
  const uint64_t asked = parse_size(answer.header("retry-after"));
  if (asked < 3600) ms = std::max<uint64_t>(asked * 1000, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(ms, kLongestMs)));
}

HttpAnswer send_patiently(HttpClient& client, const HttpRequest& request) {
  for (int attempt = 0;; ++attempt) {
    HttpAnswer answer = client.send(request);
    if (!is_passing(answer) || attempt + 1 == kAttempts) return answer;
    wait_before_retry(answer, attempt);
  }
}

void throw_for(const HttpAnswer& answer, const HubSettings& settings, const ModelName& name, const std::string& what) {
  const std::string code = answer.header("x-error-code");
  const std::string page = settings.endpoint + "/" + name.repo;
  const bool has_token = !settings.token.empty();
  if (!answer.failure.empty())
    throw_error(ErrorKind::io, "{}: cannot be fetched from {}: {}; check the connection, what came so far is kept",
                what, settings.endpoint, answer.failure);
  if (code == "GatedRepo" || (answer.status == 403 && code != "RepoNotFound"))
    throw_error(ErrorKind::io, "{}: is gated: accept its terms at {}{}", what, page,
                has_token ? " with the account HF_TOKEN belongs to" : ", then set HF_TOKEN to a token of that account");
  if (answer.status == 401)
    throw_error(ErrorKind::io, "{}: {}", what,
                has_token
                    ? "the hub does not accept the token for it; check the name, and HF_TOKEN or the token file"
                    : "does not exist on the hub or is private; check the name, or set HF_TOKEN if you have access");
  if (code == "RevisionNotFound")
    throw_error(ErrorKind::bad_call, "{}: {} has no revision {}; see {}", what, name.repo, name.revision, page);
  if (answer.status == 404)
    throw_error(ErrorKind::bad_call, "{}: is neither a file or folder here nor on the hub at {}; check the name", what,
                settings.endpoint);
  if (answer.status == 429)
    throw_error(ErrorKind::io, "{}: the hub asks to wait (429){}; try again later", what,
                has_token ? "" : ", which a token (HF_TOKEN) makes rarer");
  throw_error(ErrorKind::io, "{}: {} answered {}; try again later", what, settings.endpoint, answer.status);
}

Listing list_remote(HttpClient& client, const HubSettings& settings, const ModelName& name) {
  HttpRequest request;
  request.url =
      fmt::format("{}/api/models/{}/revision/{}", settings.endpoint, name.repo, url_encode(name.revision, false));
  request.token = settings.token;
  request.stall_s = settings.stall_s;
  const HttpAnswer answer = send_patiently(client, request);
  if (answer.status != 200 || !answer.failure.empty()) throw_for(answer, settings, name, name.text());
  const nlohmann::json root = nlohmann::json::parse(answer.body, nullptr, false);
  const auto broken = [&](const char* what) {
    throw_error(ErrorKind::bad_file, "{}: the listing from {} {}; is HF_ENDPOINT a hub?", name.text(),
                settings.endpoint, what);
  };
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
                       const std::string& commit, const std::string& path) {
  HttpRequest request;
  request.url = file_url(settings, name, commit, path);
  request.head = true;
  request.token = settings.token;
  request.stall_s = settings.stall_s;
  // The hub's own answer has the hash; the storage it redirects to has other tags.
  const HttpAnswer answer = send_patiently(client, request);
  const std::string what = fmt::format("{}: {}", name.text(), path);
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
