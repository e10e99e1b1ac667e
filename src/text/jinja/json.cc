#include <cmath>
#include <list>

#include "text/jinja/strings.h"
#include "text/jinja/text.h"

// What Python's json.dumps() writes.
namespace ingot::jinja {
namespace {

void append_string(std::string& out, std::string_view text, bool ascii) {
  const auto unit = [&out](uint32_t u) { out += fmt::format("\\u{:04x}", u); };
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
        if (c >= 0x20 && (!ascii || c < 0x7f)) {
          append_char(out, c);
        } else if (c < 0x10000) {
          unit(static_cast<uint32_t>(c));
        } else if (c < kBadByte) {
          unit(static_cast<uint32_t>(0xd800 + ((c - 0x10000) >> 10)));
          unit(static_cast<uint32_t>(0xdc00 + ((c - 0x10000) & 0x3ff)));
        } else {
          unit(static_cast<uint32_t>(0xdc00 + (c - kBadByte)));
        }
    }
  }
  out += '"';
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  std::string take() { return std::move(out_); }

  void write(const Value& v, int level) {
    if (out_.size() > kMaxValueWeight) raise_limit("tojson made over {} MiB of text", kMaxValueWeight >> 20);
    if (v.is_string()) {
      append_string(out_, v.text(), style_.ascii);
    } else if (v.is_list() || v.is_tuple()) {
      write_all('[', v.items(), ']', level, [&](const Value& item) { write(item, level + 1); });
    } else if (v.is_dict()) {
      write_dict(v.dict(), level);
    } else {
      out_ += scalar(v, "Object of type {} is not JSON serializable");
    }
  }

 private:
  static std::string scalar(const Value& v, fmt::format_string<std::string_view> otherwise) {
    if (v.is_none()) return "null";
    if (v.is_bool()) return v.as_bool() ? "true" : "false";
    if (v.is_int()) return std::to_string(v.as_int());
    if (!v.is_real()) raise(otherwise, type_name(v));
    const double d = v.as_real();
    return std::isnan(d) ? "NaN" : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity") : real_text(d);
  }

  void line(int level) {
    if (!style_.pretty) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }

  template <typename Items, typename WriteItem>
  void write_all(char open, const Items& items, char close, int level, WriteItem write_item) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      line(level + 1);
      write_item(item);
    }
    if (!first) line(level);
    out_ += close;
  }

  void write_dict(const Dict& dict, int level) {
    std::list<const Dict::Entry*> entries;  // a list's sort is safe even when the order makes no sense, as with NaN
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys)
      entries.sort([](const auto* a, const auto* b) { return compare(a->first, b->first, "<") < 0; });
    write_all('{', entries, '}', level, [&](const Dict::Entry* entry) {
      const Value& key = entry->first;
      const std::string name =
          key.is_string() ? key.text() : scalar(key, "keys must be str, int, float, bool or None, not {}");
      append_string(out_, name, style_.ascii);
      out_ += style_.key_separator;
      write(entry->second, level + 1);
    });
  }

  std::string out_;
  const JsonStyle& style_;
};

}  // namespace

std::string dump_json(const Value& v, const JsonStyle& style) {
  Writer writer(style);
  writer.write(v, 0);
  return writer.take();
}

}  // namespace ingot::jinja
