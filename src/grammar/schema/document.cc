#include "grammar/schema/document.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"

namespace ingot::grammar {
namespace {

// Values that are no schemas: what looks like a name in them is none.
bool holds_values(std::string_view keyword) {
  return keyword == "enum" || keyword == "const" || keyword == "default" || keyword == "examples";
}

// "a/b" against "http://x/y/z": enough of RFC 3986 for references within one document.
std::string resolve_uri(const std::string& base, const std::string& reference) {
  const size_t scheme = reference.find(':');
  if (scheme != reference.npos && reference.find_first_of("/?#") > scheme) return reference;
  if (reference.empty()) return base;
  if (reference[0] == '#') return base.substr(0, base.find('#')) + reference;
  const size_t authority = base.find("://");
  const size_t path = authority == base.npos ? 0 : base.find('/', authority + 3);
  if (reference[0] == '/') return base.substr(0, path) + reference;
  if (path == base.npos) return base + "/" + reference;
  const size_t slash = base.rfind('/');
  return (slash == base.npos || slash < path ? base.substr(0, path) + (path == 0 ? "" : "/")
                                             : base.substr(0, slash + 1)) +
         reference;
}

std::string decode_percent(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::sscanf(std::string(text.substr(i + 1, 2)).c_str(), "%2x", &value) == 1) {
      out.push_back(static_cast<char>(value));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~' || c == '/')
      out += c == '~' ? "~0" : "~1";
    else
      out.push_back(c);
  }
  return out;
}

std::string unescape_pointer(std::string_view key) {
  std::string out;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] == '~' && i + 1 < key.size() && (key[i + 1] == '0' || key[i + 1] == '1'))
      out.push_back(key[++i] == '0' ? '~' : '/');
    else
      out.push_back(key[i]);
  }
  return out;
}

std::string base_of(const SchemaJson& value, const std::string& outer) {
  if (!value.is_object()) return outer;
  const auto id = value.find("$id");
  if (id == value.end() || !id->is_string()) return outer;
  std::string uri = resolve_uri(outer, id->get<std::string>());
  if (uri.ends_with('#')) uri.pop_back();
  return uri;
}

}  // namespace

SchemaDocument::SchemaDocument(const SchemaJson& root, std::string place) : root_(&root) {
  names_.emplace("", Named{&root, place, base_of(root, "")});
  find_names(root, place, "", 0);
  add(root, std::move(place), base_of(root, ""));
}

void SchemaDocument::find_names(const SchemaJson& value, const std::string& place, const std::string& outer,
                                int depth) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) find_names(value[i], fmt::format("{}/{}", place, i), outer, depth + 1);
    return;
  }
  if (!value.is_object()) return;
  const std::string base = base_of(value, outer);
  if (base != outer || depth == 0) names_.try_emplace(base, Named{&value, place, base});
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const auto anchor = value.find(keyword);
    if (anchor != value.end() && anchor->is_string())
      names_.try_emplace(base + "#" + anchor->get<std::string>(), Named{&value, place, base});
  }
  for (const auto& [key, inner] : value.items())
    if (!holds_values(key)) find_names(inner, place + "/" + escape_pointer(key), base, depth + 1);
}

const SchemaNode& SchemaDocument::add(const SchemaJson& value, std::string place, const std::string& base) {
  return nodes_.try_emplace(&value, SchemaNode{&value, std::move(place), base}).first->second;
}

const SchemaNode& SchemaDocument::child(const SchemaNode& node, const SchemaJson& value,
                                        std::initializer_list<std::string_view> keys) {
  std::string place = node.place;
  for (const std::string_view key : keys) (place += "/") += escape_pointer(key);
  return add(value, std::move(place), base_of(value, node.base));
}

const SchemaNode& SchemaDocument::refer(const SchemaNode& from, const std::string& reference, const char* keyword) {
  const std::string uri = resolve_uri(from.base, reference);
  const size_t hash = uri.find('#');
  const std::string fragment = hash == uri.npos ? "" : decode_percent(std::string_view(uri).substr(hash + 1));
  const std::string resource = uri.substr(0, hash);
  const auto absent = [&]() -> const SchemaNode& {
    throw_bad_parameter(from.place + "/" + keyword, "refers to {}, which is not in this schema", printable(reference));
  };
  if (!fragment.empty() && fragment[0] != '/') {
    const auto named = names_.find(resource + "#" + fragment);
    if (named == names_.end()) return absent();
    return add(*named->second.value, named->second.place, named->second.base);
  }
  const auto named = names_.find(resource);
  if (named == names_.end()) return absent();
  const SchemaJson* value = named->second.value;
  std::string place = named->second.place, base = named->second.base;
  for (size_t at = 0; at < fragment.size();) {
    const size_t end = std::min(fragment.find('/', at + 1), fragment.size());
    const std::string key = unescape_pointer(std::string_view(fragment).substr(at + 1, end - at - 1));
    at = end;
    if (value->is_object() && value->contains(key)) {
      value = &(*value)[key];
    } else if (value->is_array() && !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == key.npos &&
               std::stoul(key) < value->size()) {
      value = &(*value)[std::stoul(key)];
    } else {
      return absent();
    }
    place += "/" + escape_pointer(key);
    base = base_of(*value, base);
  }
  if (!value->is_object() && !value->is_boolean()) return absent();
  return add(*value, std::move(place), base);
}

}  // namespace ingot::grammar
