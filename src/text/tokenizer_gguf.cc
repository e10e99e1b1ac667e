#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "formats/gguf.h"
#include "text/bpe.h"
#include "text/tokenizer_load.h"
#include "text/tokenizer_readers.h"
#include "text/unicode.h"
#include "text/word_scanners.h"

namespace ingot {
namespace {

// tokenizer.ggml.token_type

class GgufReader {
 public:
  GgufReader(const GgufFile& file, const std::string& source) : file_(file) { data_.source = source; }

  TokenizerData run() {
    const auto model = file_.get_string("tokenizer.ggml.model");
    if (!model || *model == "none" || *model == "no_vocab") {
      throw_error(ErrorKind::declined, "{}: no tokenizer.ggml.model: the file has no tokenizer; run it on token ids",
                  data_.source);
    }
    read_vocabulary();
    read_special_ids();
    bool add_bos = false;
    if (*model == "gpt2") {
      read_byte_level_bpe();
      add_bos = bos_by_default_;
    } else if (*model == "llama") {
      read_sentencepiece();
      add_bos = true;
    } else if (*model == "gemma4") {
      read_char_bpe();
      add_bos = true;
    } else {
      throw_error(ErrorKind::declined, "{}: tokenizer.ggml.model \"{}\" is not supported: gpt2, llama and gemma4 are",
                  data_.source, *model);
    }
    add_bos = file_.get_bool("tokenizer.ggml.add_bos_token").value_or(add_bos);
    const bool add_eos = file_.get_bool("tokenizer.ggml.add_eos_token").value_or(false);
    if (add_bos && data_.bos_id >= 0) data_.prefix = {data_.bos_id};
    if (add_eos && data_.eos_id >= 0) data_.suffix = {data_.eos_id};
    read_templates();
    find_end_tokens(data_);
    return std::move(data_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::bad_file, data_.source + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void read_vocabulary() {
    const auto* tokens = file_.get_strings("tokenizer.ggml.tokens");
    if (!tokens || tokens->empty()) fail("tokenizer.ggml.tokens is missing");
    const size_t count = tokens->size();
    const auto* types = file_.get_ints("tokenizer.ggml.token_type");
    if (types && types->size() != count) {
      fail("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}", types->size(), count);
    }
    data_.tokens.reserve(count);
    data_.in_model.assign(count, 1);
    for (size_t id = 0; id < count; ++id) {
      data_.tokens.emplace_back((*tokens)[id]);
      std::string& text = data_.tokens.back();
      if (!is_valid_utf8(text)) text = replace_invalid_utf8(text);
      const int64_t type = types ? (*types)[id] : int64_t{gguf_token::normal};
      const bool special = type == gguf_token::control || type == gguf_token::unknown;
      if (special || type == gguf_token::user_defined) {
        AddedToken token;
        token.id = static_cast<int32_t>(id);
        token.content = text;
        token.special = special;
        data_.added.push_back(token);
      }
      if (special) data_.in_model[id] = 0;
    }
    types_ = types;
    by_text_.reserve(count);
    for (size_t id = 0; id < count; ++id)
      if (!data_.tokens[id].empty()) by_text_.insert(data_.tokens[id], static_cast<int32_t>(id));
  }

  int64_t type_of(size_t id) const { return types_ ? (*types_)[id] : static_cast<int64_t>(gguf_token::normal); }

  int32_t read_id(const std::string& key, std::string* text) const {
    const auto value = file_.get_int(key);
    // Some converters write an id of all ones for "none".
    if (!value || *value == -1 || *value == 0xFFFFFFFF) return -1;
    if (*value < 0 || static_cast<size_t>(*value) >= data_.tokens.size()) {
      fail("{} is {}, the vocabulary has {} tokens", key, *value, data_.tokens.size());
    }
    if (text) *text = data_.tokens[static_cast<size_t>(*value)];
    return static_cast<int32_t>(*value);
  }

  void read_special_ids() {
    data_.bos_id = read_id("tokenizer.ggml.bos_token_id", &data_.bos_token);
    data_.eos_id = read_id("tokenizer.ggml.eos_token_id", &data_.eos_token);
    data_.pad_id = read_id("tokenizer.ggml.padding_token_id", &data_.pad_token);
    unk_id_ = read_id("tokenizer.ggml.unknown_token_id", &data_.unk_token);
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      const int32_t id = read_id(key, nullptr);
      if (id >= 0) data_.end_ids.push_back(id);
    }
    // Under any of its names; the second is of older converters.
    const auto read_mark = [this](std::initializer_list<const char*> names) {
      int32_t id = -1;
      for (const char* name : names)
        if (id < 0) id = read_id(fmt::format("tokenizer.ggml.{}_token_id", name), nullptr);
      return id;
    };
    data_.infill = {.prefix = read_mark({"fim_pre", "prefix"}),
                    .suffix = read_mark({"fim_suf", "suffix"}),
                    .middle = read_mark({"fim_mid", "middle"}),
                    .repository = read_mark({"fim_rep"}),
                    .file = read_mark({"fim_sep"})};
  }

  void read_merges() {
    const auto* merges = file_.get_strings("tokenizer.ggml.merges");
    if (!merges) fail("tokenizer.ggml.merges is missing");
    data_.merges.reserve(merges->size());
    std::string result;
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string_view line = (*merges)[i];
      // The left part may itself be a space, so the separator is looked for from the second byte on.
      const size_t space = line.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == line.size()) {
        fail("tokenizer.ggml.merges[{}] \"{}\" is not two tokens", i, line);
      }
      const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
      result.assign(left).append(right);
      const Merge merge{by_text_.find(left), by_text_.find(right), by_text_.find(result), static_cast<uint32_t>(i)};
      if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
        fail("tokenizer.ggml.merges[{}] \"{}\" names a token that is not in the vocabulary", i, line);
      }
      data_.merges.push_back(merge);
    }
  }

  void read_byte_level_bpe() {
    data_.byte_level = true;
    read_merges();
    const std::string_view name = file_.get_string("tokenizer.ggml.pre").value_or("default");
    if (!apply_named_pre_tokenizer(data_, name)) {
      throw_error(ErrorKind::declined,
                  "{}: tokenizer.ggml.pre \"{}\" is not supported; use the model's Hugging Face folder", data_.source,
                  name);
    }
    bos_by_default_ = data_.ignore_merges;  // the llama3 and tekken families
    if (file_.get_bool("tokenizer.ggml.add_space_prefix").value_or(false)) {
      PreTokenizerStep prefix{PreTokenizerStep::Kind::byte_level};
      prefix.add_prefix_space = true;
      prefix.use_regex = false;
      data_.pre_tokenizer.insert(data_.pre_tokenizer.begin(), prefix);
    }
    data_.decoder = {DecoderStep{DecoderStep::Kind::byte_level}};
  }

  // SentencePiece: spaces become U+2581, one more is put before the text, and pieces merge by score.
  void read_sentencepiece() {
    read_char_model(file_.get_bool("tokenizer.ggml.add_space_prefix").value_or(true));
    const auto* scores = file_.get_doubles("tokenizer.ggml.scores");
    const size_t count = data_.tokens.size();
    if (!scores) fail("tokenizer.ggml.scores is missing");
    if (scores->size() != count) {
      fail("tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens has {}", scores->size(), count);
    }
    std::vector<int32_t> order;
    for (size_t id = 0; id < count; ++id) {
      if (std::isnan((*scores)[id])) fail("tokenizer.ggml.scores[{}] is not a number", id);
      if (type_of(id) == gguf_token::normal || type_of(id) == gguf_token::unused)
        order.push_back(static_cast<int32_t>(id));
    }
    // Equal scores share a rank, so the order among them does not matter.
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return (*scores)[a] > (*scores)[b]; });
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t id = order[i];
      if (i > 0 && (*scores)[id] != (*scores)[order[i - 1]]) ++rank;
      const std::string_view text = data_.tokens[id];
      if (text.size() > kLongestMergedToken) {
        fail("tokenizer.ggml.tokens[{}] is {} bytes long, at most {} are supported", id, text.size(),
             kLongestMergedToken);
      }
      for (size_t cut = 1; cut < text.size(); ++cut) {
        if ((text[cut] & 0xC0) == 0x80) continue;
        const int32_t left = by_text_.find(text.substr(0, cut));
        const int32_t right = by_text_.find(text.substr(cut));
        if (left < 0 || right < 0 || !mergeable(left) || !mergeable(right)) continue;
        data_.merges.push_back({left, right, id, rank});
      }
    }
  }

  bool mergeable(int32_t id) const { return type_of(id) == gguf_token::normal || type_of(id) == gguf_token::unused; }

  void read_char_bpe() {
    read_char_model(file_.get_bool("tokenizer.ggml.add_space_prefix").value_or(false));
    read_merges();
  }

  void read_char_model(bool add_space_prefix) {
    using Normalize = NormalizerStep::Kind;
    using Decode = DecoderStep::Kind;
    const std::string mark(kSpaceMark);
    data_.byte_fallback = true;
    data_.fuse_unk = true;
    data_.unk_id = unk_id_;
    if (add_space_prefix) data_.normalizer.push_back({Normalize::prepend, "", mark});
    data_.normalizer.push_back({Normalize::replace_text, " ", mark});
    data_.decoder.push_back({Decode::replace_text, mark, " "});
    data_.decoder.push_back({Decode::byte_fallback});
    data_.decoder.push_back({Decode::fuse});
    if (add_space_prefix) data_.decoder.push_back({Decode::strip, "", " ", 1, 0});
  }

  void read_templates() {
    if (const auto text = file_.get_string("tokenizer.chat_template")) data_.chat_template = std::string(*text);
    const std::string_view prefix = "tokenizer.chat_template.";
    for (const auto& [key, value] : file_.values()) {
      const auto* text = std::get_if<std::string_view>(&value);
      if (text && std::string_view(key).starts_with(prefix)) {
        data_.named_templates[key.substr(prefix.size())] = std::string(*text);
      }
    }
  }

  const GgufFile& file_;
  TokenizerData data_;
  TokenTable by_text_;
  const std::vector<int64_t>* types_ = nullptr;
  int32_t unk_id_ = -1;
  bool bos_by_default_ = false;
};

PreTokenizerStep split_by(std::string_view pattern) {
  PreTokenizerStep step{PreTokenizerStep::Kind::split_regex};
  step.pattern = std::string(pattern);
  return step;
}

PreTokenizerStep bytes(bool use_regex) {
  PreTokenizerStep step{PreTokenizerStep::Kind::byte_level};
  step.use_regex = use_regex;
  return step;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool apply_named_pre_tokenizer(TokenizerData& data, std::string_view name) {
  std::vector<PreTokenizerStep>& steps = data.pre_tokenizer;
  if (is_one_of(name, {"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "mellum", "exaone4", "trillion",
                       "granite-docling"})) {
    steps = {bytes(true)};
  } else if (is_one_of(name, {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})) {
    PreTokenizerStep digits{PreTokenizerStep::Kind::digits};
    digits.individual_digits = true;
    steps = {digits, bytes(true)};
  } else if (is_one_of(name,
                       {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"})) {
    steps = {split_by(kLlama3Pattern), bytes(false)};
    data.ignore_merges = true;
  } else if (is_one_of(name, {"smaug-bpe", "dbrx"})) {
    steps = {split_by(kLlama3Pattern), bytes(false)};
  } else if (is_one_of(name, {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"})) {
    // The Hugging Face tokenizers of these models put text in normal form C first.
    if (name != "stablelm2" && name != "hunyuan") data.normalizer = {{NormalizerStep::Kind::nfc, "", ""}};
    steps = {split_by(kQwen2Pattern), bytes(false)};
  } else if (name == "tekken") {
    steps = {split_by(kTekkenPattern), bytes(false)};
    data.ignore_merges = true;
  } else if (name == "default") {
    // Files of old converters: the splits that llama.cpp makes for them.
    steps = {split_by(R"([\p{P}\$\+<=>\^~\|]+)"), split_by(kGpt2Pattern), split_by(R"(\p{N}+)"),
             split_by("[0-9][0-9][0-9]"), bytes(false)};
  } else {
    return false;
  }
  return true;
}

TokenizerData read_gguf_tokenizer(const GgufFile& file, const std::string& source) {
  return GgufReader(file, source).run();
}

std::shared_ptr<const Tokenizer> load_tokenizer(const GgufFile& file) {
  return std::make_shared<const Tokenizer>(read_gguf_tokenizer(file, file.name()));
}

}  // namespace ingot
