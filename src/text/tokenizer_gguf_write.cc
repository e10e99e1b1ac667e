#include "text/tokenizer_gguf_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

[[noreturn]] void decline(const TokenizerData& data, std::string_view what) {
  throw_error(ErrorKind::declined, "{}: GGUF cannot say {}; run the folder with --quantize", data.source, what);
}

bool same(const PreTokenizerStep& a, const PreTokenizerStep& b) {
  using Kind = PreTokenizerStep::Kind;
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::split_regex || a.kind == Kind::split_text)
    return a.pattern == b.pattern && a.behavior == b.behavior && a.invert == b.invert;
  if (a.kind == Kind::digits) return a.individual_digits == b.individual_digits;
  if (a.kind == Kind::byte_level) return a.add_prefix_space == b.add_prefix_space && a.use_regex == b.use_regex;
  return false;
}

bool same_steps(const TokenizerData& a, const TokenizerData& b) {
  return std::equal(a.pre_tokenizer.begin(), a.pre_tokenizer.end(), b.pre_tokenizer.begin(), b.pre_tokenizer.end(),
                    same) &&
         std::equal(a.normalizer.begin(), a.normalizer.end(), b.normalizer.begin(), b.normalizer.end(),
                    [](const NormalizerStep& x, const NormalizerStep& y) { return x.kind == y.kind; }) &&
         a.ignore_merges == b.ignore_merges;
}

// The name by which llama.cpp knows these splits.
std::string_view pre_tokenizer_name(const TokenizerData& data) {
  for (const std::string_view name : {"gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2", "stablelm2", "tekken"}) {
    TokenizerData known;
    apply_named_pre_tokenizer(known, name);
    if (same_steps(data, known)) return name;
  }
  decline(data, "how its tokenizer splits text");
}

bool is_byte_token(std::string_view text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && hex(text[3]) && hex(text[4]) && text[5] == '>';
}

std::vector<int32_t> types_of(const TokenizerData& data, std::vector<std::string>& tokens) {
  std::vector<int32_t> types(tokens.size(), gguf_token::normal);
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (data.byte_fallback && is_byte_token(tokens[id])) types[id] = gguf_token::byte;
    if (!tokens[id].empty()) continue;
    tokens[id] = fmt::format("[PAD{}]", id);  // no two may be alike
    types[id] = gguf_token::unused;
  }
  for (const AddedToken& token : data.added)
    types[static_cast<size_t>(token.id)] = token.special ? gguf_token::control : gguf_token::user_defined;
  if (!data.byte_level && data.unk_id >= 0) types[static_cast<size_t>(data.unk_id)] = gguf_token::unknown;
  return types;
}

void put_merges(GgufValues& values, const TokenizerData& data) {
  std::vector<const Merge*> order;
  for (const Merge& merge : data.merges) order.push_back(&merge);
  std::sort(order.begin(), order.end(),
            [](const Merge* a, const Merge* b) { return a->rank != b->rank ? a->rank < b->rank : a < b; });
  std::vector<std::string> merges;
  for (const Merge* merge : order)
    merges.push_back(data.tokens[static_cast<size_t>(merge->left)] + " " +
                     data.tokens[static_cast<size_t>(merge->right)]);
  values.put_texts("tokenizer.ggml.merges", merges);
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// SentencePiece merges by the score of the result alone: the ranks of a result's merges must say the same.
std::vector<float> scores_of(const TokenizerData& data, const std::vector<int32_t>& types) {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> first(types.size(), kNone), last(types.size(), 0);
  for (const Merge& merge : data.merges) {
    const auto id = static_cast<size_t>(merge.result);
    first[id] = std::min(first[id], merge.rank);
    last[id] = std::max(last[id], merge.rank);
  }
  std::vector<size_t> order;
  for (size_t id = 0; id < first.size(); ++id)
    if (first[id] != kNone) order.push_back(id);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first[a] < first[b]; });
  for (size_t i = 1; i < order.size(); ++i)
    if (first[order[i]] <= last[order[i - 1]]) decline(data, "merges that are not ordered by what they make");
  // Any two neighbours that make a token together would be merged: none may be there that no merge makes.
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (types[id] == gguf_token::normal && first[id] == kNone && count_characters(data.tokens[id]) > 1)
      decline(data, fmt::format("that no merge makes its token {}", id));
  std::vector<float> scores(types.size(), 0.0f);
  for (const size_t id : order) scores[id] = -static_cast<float>(first[id]) - 1;
  return scores;
}

// Whether the tokenizer is SentencePiece's: spaces as marks, nothing else done to the text. True: one mark before it.
bool adds_space_prefix(const TokenizerData& data) {
  bool prefix = false, marks = false;
  for (const NormalizerStep& step : data.normalizer) {
    if (step.kind == NormalizerStep::Kind::prepend && step.content == kSpaceMark && !prefix)
      prefix = true;
    else if (step.kind == NormalizerStep::Kind::replace_text && step.pattern == " " && step.content == kSpaceMark)
      marks = true;
    else
      decline(data, "how its tokenizer changes text");
  }
  for (const PreTokenizerStep& step : data.pre_tokenizer) {
    if (step.kind == PreTokenizerStep::Kind::split_text && marks && step.pattern == " ") continue;  // none are left
    if (step.kind != PreTokenizerStep::Kind::metaspace || step.replacement != kSpaceMark || step.split || marks)
      decline(data, "how its tokenizer splits text");
    marks = true;
    prefix = step.prepend_scheme != PrependScheme::never;
  }
  if (!marks || !data.byte_fallback) decline(data, "how its tokenizer writes spaces and unknown characters");
  return prefix;
}

void put_ids(GgufValues& values, const TokenizerData& data) {
  const auto put = [&](const char* name, int32_t id) {
    if (id >= 0) values.put_u32(fmt::format("tokenizer.ggml.{}_token_id", name), id);
  };
  // Without a tokenizer_config.json only what is put around text says which they are.
  const int32_t bos_id = data.bos_id < 0 && data.prefix.size() == 1 ? data.prefix[0] : data.bos_id;
  const int32_t eos_id = data.eos_id < 0 && data.suffix.size() == 1 ? data.suffix[0] : data.eos_id;
  put("bos", bos_id);
  put("eos", eos_id);
  put("unknown", data.unk_id);
  put("padding", data.pad_id);
  const bool bos = !data.prefix.empty(), eos = !data.suffix.empty();
  if ((bos && data.prefix != std::vector{bos_id}) || (eos && data.suffix != std::vector{eos_id}))
    decline(data, "what its tokenizer puts around text");
  values.put_bool("tokenizer.ggml.add_bos_token", bos);
  values.put_bool("tokenizer.ggml.add_eos_token", eos);
}

}  // namespace

void put_gguf_tokenizer(GgufValues& values, const TokenizerData& data, int64_t vocab) {
  const auto count = static_cast<size_t>(vocab);
  if (data.tokens.size() > count)
    throw_error(ErrorKind::bad_file, "{}: has {} tokens, the embedding only {} rows", data.source, data.tokens.size(),
                vocab);
  std::vector<std::string> tokens = data.tokens;
  tokens.resize(count);
  const std::vector<int32_t> types = types_of(data, tokens);
  if (data.byte_level) {
    values.put_text("tokenizer.ggml.model", "gpt2");
    values.put_text("tokenizer.ggml.pre", pre_tokenizer_name(data));
    put_merges(values, data);
  } else {
    const bool prefix = adds_space_prefix(data);
    values.put_text("tokenizer.ggml.model", "llama");
    values.put_text("tokenizer.ggml.pre", "default");
    values.put_bool("tokenizer.ggml.add_space_prefix", prefix);
    values.put_f32s("tokenizer.ggml.scores", scores_of(data, types));
  }
  values.put_texts("tokenizer.ggml.tokens", tokens);
  values.put_i32s("tokenizer.ggml.token_type", types);
  put_ids(values, data);
  if (data.chat_template) values.put_text("tokenizer.chat_template", *data.chat_template);
}

}  // namespace ingot
