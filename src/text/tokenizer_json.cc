#include "text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Json pattern_of(const std::string& pattern, bool regex) {
  return regex ? Json{{"Regex", pattern}} : Json{{"String", pattern}};
}

const char* behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated: return "Isolated";
    case SplitBehavior::removed: return "Removed";
    case SplitBehavior::merged_with_previous: return "MergedWithPrevious";
    case SplitBehavior::merged_with_next: return "MergedWithNext";
    case SplitBehavior::contiguous: return "Contiguous";
  }
  return "Isolated";
}

const char* scheme_name(PrependScheme scheme) {
  switch (scheme) {
    case PrependScheme::first: return "first";
    case PrependScheme::always: return "always";
    case PrependScheme::never: return "never";
  }
  return "always";
}

Json byte_level(bool add_prefix_space, bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json write_step(const NormalizerStep& step) {
  using Kind = NormalizerStep::Kind;
  switch (step.kind) {
    case Kind::nfc: return {{"type", "NFC"}};
    case Kind::nfd: return {{"type", "NFD"}};
    case Kind::nfkc: return {{"type", "NFKC"}};
    case Kind::nfkd: return {{"type", "NFKD"}};
    case Kind::lowercase: return {{"type", "Lowercase"}};
    case Kind::replace_text:
    case Kind::replace_regex:
      return {{"type", "Replace"},
              {"pattern", pattern_of(step.pattern, step.kind == Kind::replace_regex)},
              {"content", step.content}};
    case Kind::prepend: return {{"type", "Prepend"}, {"prepend", step.content}};
    case Kind::strip: return {{"type", "Strip"}, {"strip_left", step.left}, {"strip_right", step.right}};
  }
  return nullptr;
}

Json write_step(const PreTokenizerStep& step) {
  using Kind = PreTokenizerStep::Kind;
  switch (step.kind) {
    case Kind::split_text:
    case Kind::split_regex:
      return {{"type", "Split"},
              {"pattern", pattern_of(step.pattern, step.kind == Kind::split_regex)},
              {"behavior", behavior_name(step.behavior)},
              {"invert", step.invert}};
    case Kind::digits: return {{"type", "Digits"}, {"individual_digits", step.individual_digits}};
    case Kind::byte_level: return byte_level(step.add_prefix_space, step.use_regex);
    case Kind::metaspace:
      return {{"type", "Metaspace"},
              {"replacement", step.replacement},
              {"prepend_scheme", scheme_name(step.prepend_scheme)},
              {"split", step.split}};
  }
  return nullptr;
}

Json write_step(const DecoderStep& step) {
  using Kind = DecoderStep::Kind;
  switch (step.kind) {
    case Kind::byte_level: return byte_level(true, true);
    case Kind::byte_fallback: return {{"type", "ByteFallback"}};
    case Kind::fuse: return {{"type", "Fuse"}};
    case Kind::replace_text:
      return {{"type", "Replace"}, {"pattern", pattern_of(step.pattern, false)}, {"content", step.content}};
    case Kind::strip: return {{"type", "Strip"}, {"content", step.content}, {"start", step.start}, {"stop", step.stop}};
    case Kind::metaspace:
      return {{"type", "Metaspace"},
              {"replacement", step.pattern},
              {"prepend_scheme", step.drop_first ? "always" : "never"},
              {"split", true}};
  }
  return nullptr;
}

// A list of steps under the name Hugging Face gives it ("normalizers", "pretokenizers", "decoders"); null: none.
template <typename Step>
Json write_sequence(const std::vector<Step>& steps, const char* name) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return write_step(steps[0]);
  Json list = Json::array();
  for (const Step& step : steps) list.push_back(write_step(step));
  return {{"type", "Sequence"}, {name, list}};
}

Json write_post_processor(const TokenizerData& data) {
  if (data.prefix.empty() && data.suffix.empty()) return nullptr;
  Json tokens = Json::object();
  const auto special = [&](int32_t id, int type) {
    const std::string& text = data.tokens[static_cast<size_t>(id)];
    tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    return Json{{"SpecialToken", {{"id", text}, {"type_id", type}}}};
  };
  const auto around = [&](Json& list, const char* name, int type) {
    for (const int32_t id : data.prefix) list.push_back(special(id, type));
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    for (const int32_t id : data.suffix) list.push_back(special(id, type));
  };
  Json single = Json::array(), pair = Json::array();
  around(single, "A", 0);
  around(pair, "A", 0);
  around(pair, "B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json write_model(const TokenizerData& data) {
  // nlohmann's ordered object searches its keys one after the other: far too slow for a vocabulary.
  nlohmann::json vocab = nlohmann::json::object();
  // Added tokens too: one that is missing here would be numbered anew, after the vocabulary.
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (!data.tokens[id].empty()) vocab[data.tokens[id]] = id;
  std::vector<Merge> merges = data.merges;
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
  Json pairs = Json::array();
  for (const Merge& merge : merges)
    pairs.push_back({data.tokens[static_cast<size_t>(merge.left)], data.tokens[static_cast<size_t>(merge.right)]});
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", data.unk_id < 0 ? Json() : Json(data.tokens[static_cast<size_t>(data.unk_id)])},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", data.fuse_unk},
                {"byte_fallback", data.byte_fallback},
                {"ignore_merges", data.ignore_merges}};
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(pairs);
  return model;
}

std::string dump(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string write_tokenizer_json(const TokenizerData& data) {
  std::vector<AddedToken> sorted = data.added;
  std::sort(sorted.begin(), sorted.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  Json added = Json::array();
  for (const AddedToken& token : sorted)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  json["added_tokens"] = std::move(added);
  json["normalizer"] = write_sequence(data.normalizer, "normalizers");
  json["pre_tokenizer"] = write_sequence(data.pre_tokenizer, "pretokenizers");
  json["post_processor"] = write_post_processor(data);
  json["decoder"] = data.has_decoder ? write_sequence(data.decoder, "decoders") : Json();
  json["model"] = write_model(data);
  return dump(json);
}

std::string write_tokenizer_config(const TokenizerData& data, int64_t max_length) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", max_length},
               {"clean_up_tokenization_spaces", false}};
  const auto put = [&](const char* name, const std::string& text) {
    if (!text.empty()) json[name] = text;
  };
  put("bos_token", data.bos_token);
  put("eos_token", data.eos_token);
  put("unk_token", data.unk_token);
  put("pad_token", data.pad_token);
  if (data.chat_template) json["chat_template"] = *data.chat_template;
  return dump(json);
}

}  // namespace ingot
