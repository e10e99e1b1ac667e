#include "text/hf_steps.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "text/unicode.h"

namespace ingot {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const JsonView& view, std::string_view key, std::string_view what) {
  throw_error(ErrorKind::bad_file, "{}: {} {}", view.name(), view.path_of(key), what);
}

[[noreturn]] void decline(const JsonView& view, std::string_view key, std::string_view value) {
  throw_error(ErrorKind::declined, "{}: {} \"{}\" is not supported", view.name(), view.path_of(key), printable(value));
}

// Calls read(view) for the step itself, or for each step of a Sequence whose list is called `list_key`, at any depth.
template <typename Read>
void for_each_step(const JsonView& view, std::string_view list_key, const Read& read) {
  if (view.need_string("type") != "Sequence") {
    read(view);
    return;
  }
  const json* list = view.find(list_key);
  if (!list || !list->is_array()) fail(view, list_key, "must be a list");
  for (size_t i = 0; i < list->size(); ++i) {
    for_each_step(JsonView((*list)[i], view.name(), fmt::format("{}[{}].", view.path_of(list_key), i)), list_key, read);
  }
}

struct Pattern {
  std::string text;
  bool is_regex;
};

// {"String": "..."} or {"Regex": "..."}
Pattern read_pattern(const JsonView& view) {
  const JsonView pattern = view.need_object("pattern");
  if (const auto text = pattern.find_string("String")) return {*text, false};
  return {pattern.need_string("Regex"), true};
}

std::string read_character(const JsonView& view, std::string_view key) {
  const std::string text = view.need_string(key);
  if (text.empty() || decode_valid_utf8(text.data()).length != text.size()) fail(view, key, "must be one character");
  return text;
}

// "prepend_scheme", or the older "add_prefix_space".
PrependScheme read_scheme(const JsonView& view) {
  if (view.find_bool("add_prefix_space") == false) return PrependScheme::never;
  const std::string scheme = view.find_string("prepend_scheme").value_or("always");
  if (scheme == "first") return PrependScheme::first;
  if (scheme == "always") return PrependScheme::always;
  if (scheme == "never") return PrependScheme::never;
  fail(view, "prepend_scheme", "must be first, always or never");
}

NormalizerStep read_normalizer(const JsonView& view) {
  using Kind = NormalizerStep::Kind;
  const std::string type = view.need_string("type");
  if (type == "NFC") return {Kind::nfc, "", ""};
  if (type == "NFD") return {Kind::nfd, "", ""};
  if (type == "NFKC") return {Kind::nfkc, "", ""};
  if (type == "NFKD") return {Kind::nfkd, "", ""};
  if (type == "Lowercase") return {Kind::lowercase, "", ""};
  if (type == "Prepend") return {Kind::prepend, "", view.need_string("prepend")};
  if (type == "Strip") return {Kind::strip, "", "", view.need_bool("strip_left"), view.need_bool("strip_right")};
  if (type == "Replace") {
    const Pattern pattern = read_pattern(view);
    if (pattern.text.empty()) fail(view, "pattern", "is empty");
    return {pattern.is_regex ? Kind::replace_regex : Kind::replace_text, pattern.text, view.need_string("content")};
  }
  decline(view, "type", type);
}

SplitBehavior read_behavior(const JsonView& view) {
  const std::string name = view.need_string("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail(view, "behavior", "must be Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

PreTokenizerStep read_pre_tokenizer(const JsonView& view) {
  using Kind = PreTokenizerStep::Kind;
  const std::string type = view.need_string("type");
  if (type == "Split") {
    const Pattern pattern = read_pattern(view);
    // An empty string matches between all characters, as an empty pattern does.
    PreTokenizerStep step{pattern.is_regex || pattern.text.empty() ? Kind::split_regex : Kind::split_text};
    step.pattern = pattern.text;
    step.behavior = read_behavior(view);
    step.invert = view.find_bool("invert").value_or(false);
    return step;
  }
  if (type == "Digits") {
    PreTokenizerStep step{Kind::digits};
    step.individual_digits = view.find_bool("individual_digits").value_or(false);
    return step;
  }
  if (type == "ByteLevel") {
    PreTokenizerStep step{Kind::byte_level};
    step.add_prefix_space = view.find_bool("add_prefix_space").value_or(true);
    step.use_regex = view.find_bool("use_regex").value_or(true);
    return step;
  }
  if (type == "Metaspace") {
    PreTokenizerStep step{Kind::metaspace};
    step.replacement = read_character(view, "replacement");
    step.prepend_scheme = read_scheme(view);
    step.split = view.find_bool("split").value_or(true);
    return step;
  }
  decline(view, "type", type);
}

uint32_t read_count(const JsonView& view, std::string_view key) {
  const int64_t count = view.need_int(key);
  if (count < 0 || count > 1'000'000) fail(view, key, "is out of range");
  return static_cast<uint32_t>(count);
}

DecoderStep read_decoder(const JsonView& view) {
  using Kind = DecoderStep::Kind;
  const std::string type = view.need_string("type");
  if (type == "ByteLevel") return {Kind::byte_level};
  if (type == "ByteFallback") return {Kind::byte_fallback};
  if (type == "Fuse") return {Kind::fuse};
  if (type == "Strip") {
    return {Kind::strip, "", read_character(view, "content"), read_count(view, "start"), read_count(view, "stop")};
  }
  if (type == "Replace") {
    const Pattern pattern = read_pattern(view);
    if (pattern.is_regex) decline(view, "pattern", "Regex");
    return {Kind::replace_text, pattern.text, view.need_string("content")};
  }
  if (type == "Metaspace") {
    const bool drop = read_scheme(view) != PrependScheme::never;
    return {Kind::metaspace, read_character(view, "replacement"), "", 0, 0, drop};
  }
  decline(view, "type", type);
}

}  // namespace

void read_hf_steps(const JsonView& tokenizer, TokenizerData& data) {
  if (const auto view = tokenizer.find_object("normalizer")) {
    for_each_step(*view, "normalizers",
                  [&](const JsonView& step) { data.normalizer.push_back(read_normalizer(step)); });
  }
  if (const auto view = tokenizer.find_object("pre_tokenizer")) {
    for_each_step(*view, "pretokenizers", [&](const JsonView& step) {
      // After ByteLevel a text is in the byte alphabet: a further split would see other characters than the ones
      // written.
      if (data.byte_level) decline(step, "type", step.need_string("type") + " after ByteLevel");
      data.pre_tokenizer.push_back(read_pre_tokenizer(step));
      data.byte_level = data.pre_tokenizer.back().kind == PreTokenizerStep::Kind::byte_level;
    });
  }
  const auto decoder = tokenizer.find_object("decoder");
  data.has_decoder = decoder.has_value();
  if (decoder) {
    for_each_step(*decoder, "decoders", [&](const JsonView& step) { data.decoder.push_back(read_decoder(step)); });
  }
}

}  // namespace ingot
