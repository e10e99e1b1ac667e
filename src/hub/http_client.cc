#include "hub/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "core/ascii.h"
#include "core/error.h"

namespace ingot::hub {
namespace {

constexpr int kMostRedirects = 8;
constexpr size_t kMostBody = 64 << 20;  // listings are far smaller
constexpr size_t kMostHeader = 16 << 10;
constexpr long kConnectSeconds = 15;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

using UrlHandle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string url_part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

bool is_http(CURLU* url) {
  const std::string scheme = ascii_lower(url_part(url, CURLUPART_SCHEME));
  return scheme == "http" || scheme == "https";
}

// What the callbacks of one transfer share.
struct Transfer {
  const FetchRequest* request = nullptr;
  FetchReply* answer = nullptr;
  CURL* curl = nullptr;
  bool accepted = false;
  std::exception_ptr thrown;  // exceptions must not pass through C frames
};

size_t on_header(char* data, size_t, size_t bytes, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, bytes);
  if (bytes > kMostHeader) return 0;
  if (line.starts_with("HTTP/")) {  // a new answer, after an interim one
    transfer.answer->headers.clear();
    return bytes;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bytes;
  std::string value(line.substr(colon + 1));
  value.erase(0, std::min(value.find_first_not_of(" \t"), value.size()));
  value.erase(value.find_last_not_of(" \t\r\n") + 1);
  transfer.answer->headers[ascii_lower(std::string(line.substr(0, colon)))] = value;
  return bytes;
}

size_t on_body(char* data, size_t, size_t bytes, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  FetchReply& answer = *transfer.answer;
  long status = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  if (!transfer.request->sink || status < 200 || status > 299) {
    if (answer.body.size() + bytes > kMostBody) return 0;
    answer.body.append(data, bytes);
    return bytes;
  }
  try {
    if (!transfer.accepted && transfer.request->accept && !transfer.request->accept(answer)) return 0;
    transfer.accepted = true;
    return transfer.request->sink(data, bytes) ? bytes : 0;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
}

// Where libcurl's own list of certificates is not there, because it was built for another distribution: the list of
// this one. Empty: libcurl knows what to do.
const std::string& system_ca_file() {
  static const std::string found = [] {
    const curl_version_info_data* info = curl_version_info(CURLVERSION_NOW);
    if (info->age < CURLVERSION_SEVENTH || info->cainfo == nullptr || access(info->cainfo, R_OK) == 0) return "";
    for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                             "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
      if (access(path, R_OK) == 0) return path;
    return "";
  }();
  return found;
}

bool is_hopeless(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_URL_MALFORMAT ||
         code == CURLE_UNSUPPORTED_PROTOCOL;
}

// libcurl's own words for a failure, without line ends.
std::string describe(CURLcode code, const char* detail) {
  std::string text = detail[0] != '\0' ? detail : curl_easy_strerror(code);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

struct HttpClient::Impl {
  CURL* curl = nullptr;
  ~Impl() {
    if (curl != nullptr) curl_easy_cleanup(curl);
  }
};

std::string FetchReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  impl_->curl = curl_easy_init();
  if (impl_->curl == nullptr) throw_error(ErrorKind::internal, "libcurl cannot be started");
}

HttpClient::~HttpClient() = default;

FetchReply HttpClient::send(const FetchRequest& request) {
  std::string url = request.url;
  const std::string origin = origin_of(url);
  for (int hop = 0;; ++hop) {
    const bool home = origin_of(url) == origin;
    FetchReply answer = send_once(request, url, home);
    answer.url = url;
    answer.redirected = !home;
    if (!is_redirect(answer.status)) return answer;
    // The hub says here what it redirects to; that place does not know it.
    if (request.head && !answer.header("x-linked-etag").empty()) return answer;
    const std::string target = resolve_location(url, answer.header("location"));
    if (origin_of(target) != origin && !request.leave_origin) return answer;
    if (target.empty() || hop == kMostRedirects) {
      answer.failure = target.empty() ? "a redirect without a usable address" : "too many redirects";
      return answer;
    }
    if (url.starts_with("https://") && !target.starts_with("https://")) {
      answer.failure = "a redirect from https to an address without encryption";
      return answer;
    }
    url = target;
  }
}

FetchReply HttpClient::send_once(const FetchRequest& request, const std::string& url, bool with_token) {
  FetchReply answer;
  CURL* curl = impl_->curl;
  curl_easy_reset(curl);  // keeps the open connections
  Transfer transfer{.request = &request, .answer = &answer, .curl = curl};
  char detail[CURL_ERROR_SIZE] = "";
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, curl_slist_free_all);
  const auto add_header = [&](const std::string& line) {
    curl_slist* list = curl_slist_append(headers.get(), line.c_str());
    if (list == nullptr) throw std::bad_alloc();
    headers.release();
    headers.reset(list);
  };
  if (with_token && !request.token.empty()) add_header("Authorization: Bearer " + request.token);
  if (request.range_start > 0) add_header(fmt::format("Range: bytes={}-", request.range_start));
  add_header("Accept-Encoding: identity");  // hashes are of the bytes as they lie there
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
#if CURL_AT_LEAST_VERSION(7, 85, 0)
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOBODY, request.head ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "ingot");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  if (const std::string& ca = request.ca_file.empty() ? system_ca_file() : request.ca_file; !ca.empty())
    curl_easy_setopt(curl, CURLOPT_CAINFO, ca.c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, request.stall_s);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  if (code != CURLE_OK) answer.failure = describe(code, detail);
  answer.hopeless = is_hopeless(code);
  return answer;
}

std::string resolve_location(const std::string& base, const std::string& location) {
  if (location.empty()) return "";
  const UrlHandle url(curl_url(), curl_url_cleanup);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK) return "";
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK || !is_http(url.get())) return "";
  return url_part(url.get(), CURLUPART_URL);
}

std::string origin_of(const std::string& text) {
  const UrlHandle url(curl_url(), curl_url_cleanup);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK || !is_http(url.get())) return "";
  return ascii_lower(fmt::format("{}://{}:{}", url_part(url.get(), CURLUPART_SCHEME),
                                 url_part(url.get(), CURLUPART_HOST),
                                 url_part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)));
}

std::string url_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain || (keep_slashes && c == '/'))
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace ingot::hub
