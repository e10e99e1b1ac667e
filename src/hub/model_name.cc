#include "hub/model_name.h"

#include <algorithm>

namespace ingot::hub {
namespace {

constexpr size_t kLongestRepo = 96;  // the hub's own limit
constexpr size_t kLongestPath = 1024;

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// One half of "owner/name". The hub allows no "--" because its cache writes "/" that way.
bool is_repo_part(std::string_view part) {
  if (part.empty() || part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos)
    return false;
  if (part.front() == '-' || part.front() == '.' || part.back() == '-' || part.back() == '.') return false;
  return std::all_of(part.begin(), part.end(),
                     [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_weight_file(std::string_view name) { return name.ends_with(".gguf") || name.ends_with(".safetensors"); }

}  // namespace

std::string ModelName::text() const {
  std::string out = repo;
  if (revision != "main") out += "@" + revision;
  if (!variant.empty()) out += ":" + variant;
  return out;
}

std::optional<ModelName> parse_model_name(std::string_view text) {
  ModelName name;
  const size_t repo_end = std::min(text.find_first_of("@:"), text.size());
  const std::string_view repo = text.substr(0, repo_end);
  const size_t slash = repo.find('/');
  if (slash == std::string_view::npos || repo.size() > kLongestRepo) return std::nullopt;
  if (!is_repo_part(repo.substr(0, slash)) || !is_repo_part(repo.substr(slash + 1))) return std::nullopt;
  if (is_weight_file(repo)) return std::nullopt;
  name.repo = repo;
  bool has_revision = false;
  for (size_t at = repo_end; at < text.size();) {
    const char mark = text[at];
    const size_t end = std::min(text.find_first_of("@:", at + 1), text.size());
    const std::string_view value = text.substr(at + 1, end - at - 1);
    if (!is_safe_relative_path(value)) return std::nullopt;
    if (mark == '@' ? has_revision : !name.variant.empty()) return std::nullopt;
    if (mark == '@') {
      name.revision = value;
      has_revision = true;
    } else {
      name.variant = value;
    }
    at = end;
  }
  return name;
}

bool is_safe_relative_path(std::string_view path) {
  if (path.empty() || path.size() > kLongestPath) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return false;
    start = end + 1;
  }
  return true;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace ingot::hub
