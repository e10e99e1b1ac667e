#include <cmath>
#include <list>

#include "text/jinja/from_json.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

#include <nlohmann/json.hpp>

namespace ingot::jinja {
namespace {

void append_escaped(std::string& out, char32_t c) {
  const auto unit = [&out](uint32_t u) { out += fmt::format("\\u{:04x}", u); };
  if (c < 0x10000) {
    unit(static_cast<uint32_t>(c));
  } else if (c < kBadByte) {
    unit(static_cast<uint32_t>(0xd800 + ((c - 0x10000) >> 10)));
    unit(static_cast<uint32_t>(0xdc00 + ((c - 0x10000) & 0x3ff)));
  } else {
    unit(static_cast<uint32_t>(0xdc00 + (c - kBadByte)));
  }
}

void append_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_char(text, pos);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (c < 0x20 || (ascii && c >= 0x7f)) {
          append_escaped(out, c);
        } else {
          append_char(out, c);
        }
    }
  }
  out += '"';
}

std::string number_text(const Value& v) {
  if (v.is_int()) return std::to_string(v.as_int());
  const double d = v.as_real();
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return real_text(d);
}

std::string key_text(const Value& key) {
  if (key.is_string()) return key.text();
  if (key.is_none()) return "null";
  if (key.is_bool()) return key.as_bool() ? "true" : "false";
  if (key.is_number()) return number_text(key);
  raise(Fault::type_error, "keys must be str, int, float, bool or None, not {}", type_name(key));
}

class Writer {
 public:
  Writer(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& v, int level) {
    if (out_.size() > kMaxValueWeight) raise(Fault::limit, "tojson made over {} MiB of text", kMaxValueWeight >> 20);
    switch (v.kind()) {
      case Kind::none: out_ += "null"; break;
      case Kind::boolean: out_ += v.as_bool() ? "true" : "false"; break;
      case Kind::integer:
      case Kind::real: out_ += number_text(v); break;
      case Kind::string: append_string(out_, v.text(), style_.ascii); break;
      case Kind::sequence: write_list(v.items(), level); break;
      case Kind::dict: write_dict(v.dict(), level); break;
      default: raise(Fault::type_error, "Object of type {} is not JSON serializable", type_name(v));
    }
  }

 private:
  void line(int level) {
    if (!style_.pretty) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }

  void write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(level + 1);
      write(items[i], level + 1);
    }
    line(level);
    out_ += ']';
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::list<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys)
      entries.sort([](const auto* a, const auto* b) { return compare(a->first, b->first, "<") < 0; });
    out_ += '{';
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      line(level + 1);
      append_string(out_, key_text(entry->first), style_.ascii);
      out_ += style_.key_separator;
      write(entry->second, level + 1);
    }
    line(level);
    out_ += '}';
  }

  std::string& out_;
  const JsonStyle& style_;
};

Value convert(const nlohmann::ordered_json& json, int level) {
  using Type = nlohmann::ordered_json::value_t;
  if (level > kMaxValueDepth) raise(Fault::limit, "the input nests deeper than {} levels", kMaxValueDepth);
  switch (json.type()) {
    case Type::null: return Value();
    case Type::boolean: return Value(json.get<bool>());
    case Type::number_integer: return Value(json.get<int64_t>());
    case Type::number_unsigned: {
      const uint64_t u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(INT64_MAX)) raise(Fault::overflow, "the number {} is over 63 bits", u);
      return Value(static_cast<int64_t>(u));
    }
    case Type::number_float: return Value(json.get<double>());
    case Type::string: return Value(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, level + 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) dict->set(Value(key), convert(value, level + 1));
      return Value(std::shared_ptr<const Dict>(std::move(dict)));
    }
    default: raise(Fault::type_error, "the input has a value that is not JSON text");
  }
}

}  // namespace

std::string dump_json(const Value& v, const JsonStyle& style) {
  std::string out;
  Writer(out, style).write(v, 0);
  return out;
}

Value from_json(const nlohmann::ordered_json& json) { return convert(json, 1); }

}  // namespace ingot::jinja
