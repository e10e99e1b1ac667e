#include "hub/settings.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "core/ascii.h"
#include "core/error.h"
#include "core/settings.h"

namespace ingot::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPublicHub = "https://huggingface.co";

// "~/x" where no shell has seen it: a service's environment, say.
fs::path expand_home(const std::string& path) {
  const auto home = environment("HOME");
  if (!home || !(path == "~" || path.starts_with("~/"))) return path;
  return path.size() <= 2 ? fs::path(*home) : fs::path(*home) / path.substr(2);
}

fs::path hugging_face_home() {
  if (const auto home = environment("HF_HOME")) return expand_home(*home);
  if (const auto xdg = environment("XDG_CACHE_HOME")) return fs::path(*xdg) / "huggingface";
  if (const auto home = environment("HOME")) return fs::path(*home) / ".cache" / "huggingface";
  return {};
}

std::string trimmed(std::string text) {
  const char* spaces = " \t\r\n";
  text.erase(0, std::min(text.find_first_not_of(spaces), text.size()));
  text.erase(text.find_last_not_of(spaces) + 1);
  return text;
}

std::string read_token() {
  std::string source = "HF_TOKEN";
  std::string token = trimmed(environment("HF_TOKEN").value_or(""));
  if (token.empty()) {
    const auto given = environment("HF_TOKEN_PATH");
    const fs::path home = hugging_face_home();
    if (!given && home.empty()) return "";
    source = given ? expand_home(*given).string() : (home / "token").string();
    std::ifstream file(source);
    std::getline(file, token);
    token = trimmed(token);
  }
  // It becomes a header line: nothing in it may end that line.
  if (!std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
    throw_error(ErrorKind::bad_call, "{}: is not a token (it has spaces or odd characters); copy it again", source);
  return token;
}

std::string read_ca_file() {
  const std::string path = environment("SSL_CERT_FILE").value_or("");
  if (!path.empty() && !std::ifstream(path))
    throw_error(ErrorKind::bad_call, "SSL_CERT_FILE={}: cannot be read; name a file of certificates (PEM)", path);
  return path;
}

bool read_switch(const char* name) {
  const std::string value = ascii_lower(environment(name).value_or("0"));
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value == "0" || value == "false" || value == "no" || value == "off") return false;
  throw_error(ErrorKind::bad_call, "{}={}: must be 0 or 1", name, value);
}

std::string read_endpoint() {
  std::string endpoint = environment("HF_ENDPOINT").value_or(kPublicHub);
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if ((!endpoint.starts_with("http://") && !endpoint.starts_with("https://")) ||
      endpoint.find_first_of(" \t\r\n?#@") != std::string::npos)
    throw_error(ErrorKind::bad_call, "HF_ENDPOINT: must be an address like {}, without user name", kPublicHub);
  return endpoint;
}

long read_seconds(const char* name, long value) {
  const auto text = environment(name);
  if (!text) return value;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 1 || value > 3600)
    throw_error(ErrorKind::bad_call, "{}={}: must be whole seconds from 1 to 3600", name, *text);
  return value;
}

}  // namespace

HubSettings HubSettings::from_environment() {
  HubSettings settings;
  const auto cache = environment("HF_HUB_CACHE");
  settings.cache = cache ? expand_home(*cache) : hugging_face_home();
  if (!cache && !settings.cache.empty()) settings.cache /= "hub";
  settings.endpoint = read_endpoint();
  settings.token = read_token();
  settings.ca_file = read_ca_file();
  settings.offline = read_switch("HF_HUB_OFFLINE");
  settings.stall_s = read_seconds("HF_HUB_DOWNLOAD_TIMEOUT", settings.stall_s);
  return settings;
}

}  // namespace ingot::hub
