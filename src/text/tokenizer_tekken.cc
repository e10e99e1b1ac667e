#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

// Files up to version 7 do not list their special tokens; these are the first of them, in order.
constexpr std::string_view kOldSpecialTokens[] = {"<unk>",
                                                  "<s>",
                                                  "</s>",
                                                  "[INST]",
                                                  "[/INST]",
                                                  "[AVAILABLE_TOOLS]",
                                                  "[/AVAILABLE_TOOLS]",
                                                  "[TOOL_RESULTS]",
                                                  "[/TOOL_RESULTS]",
                                                  "[TOOL_CALLS]",
                                                  "[IMG]",
                                                  "<pad>",
                                                  "[IMG_BREAK]",
                                                  "[IMG_END]",
                                                  "[PREFIX]",
                                                  "[MIDDLE]",
                                                  "[SUFFIX]",
                                                  "[SYSTEM_PROMPT]",
                                                  "[/SYSTEM_PROMPT]",
                                                  "[TOOL_CONTENT]"};

constexpr int64_t kMostTekkenTokens = 1 << 22;

// Standard base64 with padding; false when it is malformed.
bool decode_base64(std::string_view text, std::string& out) {
  static const std::array<int8_t, 256> values = [] {
    std::array<int8_t, 256> v;
    v.fill(-1);
    const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < digits.size(); ++i) v[static_cast<uint8_t>(digits[i])] = static_cast<int8_t>(i);
    return v;
  }();
  out.clear();
  if (text.size() % 4 != 0) return false;
  for (int pads = 0; pads < 2 && text.ends_with('='); ++pads) text.remove_suffix(1);
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int value = values[static_cast<uint8_t>(c)];
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return count < 6;
}

}  // namespace

TokenizerData read_tekken_tokenizer(std::string_view tekken_json, const std::string& source) {
  const nlohmann::json root = parse_json(tekken_json, source, {.unique_keys = false});
  const JsonView view(root, source);
  const auto fail = [&source](const std::string& what) { throw Error(ErrorKind::bad_file, source + ": " + what); };

  const JsonView config = view.need_object("config");
  const int64_t size = config.need_int("default_vocab_size");
  const int64_t specials = config.need_int("default_num_special_tokens");
  if (specials < 0 || size <= specials || size > kMostTekkenTokens) {
    fail(fmt::format("config.default_vocab_size {} and config.default_num_special_tokens {} make no sense", size,
                     specials));
  }
  const nlohmann::json* vocab = view.find("vocab");
  if (!vocab || !vocab->is_array()) fail("vocab must be a list of tokens");
  const int64_t words = size - specials;
  if (static_cast<int64_t>(vocab->size()) < words) {
    fail(fmt::format("vocab has {} tokens, config.default_vocab_size asks for {}", vocab->size(), words));
  }

  TokenizerData data;
  data.source = source;
  data.byte_level = true;
  data.ignore_merges = true;
  data.tokens.resize(static_cast<size_t>(size));
  data.in_model.assign(static_cast<size_t>(size), 1);
  std::fill_n(data.in_model.begin(), specials, 0);

  // Special tokens: the listed ones, then fillers up to their number.
  std::vector<AddedToken> added(static_cast<size_t>(specials));
  const nlohmann::json* listed = view.find("special_tokens");
  if (listed && !listed->is_array()) fail("special_tokens must be a list");
  const size_t count = listed ? listed->size() : std::min<size_t>(std::size(kOldSpecialTokens), added.size());
  if (count > added.size()) fail(fmt::format("special_tokens has {} entries, config allows {}", count, specials));
  for (size_t i = 0; i < count; ++i) {
    int64_t rank = static_cast<int64_t>(i);
    std::string text;
    if (listed) {
      const JsonView entry((*listed)[i], source, fmt::format("special_tokens[{}].", i));
      rank = entry.need_int("rank");
      text = entry.need_string("token_str");
      if (rank < 0 || rank >= specials)
        fail(fmt::format("special_tokens[{}].rank is {}, the limit is {}", i, rank, specials));
    } else {
      text = kOldSpecialTokens[i];
    }
    if (text.empty()) fail(fmt::format("special_tokens[{}].token_str is empty", i));
    if (!added[rank].content.empty()) fail(fmt::format("special_tokens[{}].rank {} is used twice", i, rank));
    added[rank].content = text;
  }
  for (int64_t id = 0; id < specials; ++id) {
    AddedToken& token = added[id];
    if (token.content.empty()) token.content = fmt::format("<SPECIAL_{}>", id);
    token.id = static_cast<int32_t>(id);
    token.special = true;
    data.tokens[id] = token.content;
  }

  // The vocabulary: id = number of special tokens + rank; a lower rank merges first.
  std::vector<std::string> bytes(static_cast<size_t>(words));
  TokenTable by_bytes;
  by_bytes.reserve(static_cast<size_t>(words));
  for (int64_t i = 0; i < words; ++i) {
    const JsonView entry((*vocab)[i], source, fmt::format("vocab[{}].", i));
    if (entry.need_int("rank") != i)
      fail(fmt::format("vocab[{}].rank is {}, tokens must be in order", i, entry.need_int("rank")));
    const nlohmann::json* text = entry.find("token_bytes");
    if (!text || !text->is_string() || !decode_base64(text->get_ref<const std::string&>(), bytes[i]) ||
        bytes[i].empty()) {
      fail(fmt::format("vocab[{}].token_bytes is not base64 of at least one byte", i));
    }
    if (bytes[i].size() > kLongestMergedToken) {
      fail(fmt::format("vocab[{}].token_bytes is longer than {} bytes", i, kLongestMergedToken));
    }
    if (by_bytes.find(bytes[i]) >= 0) fail(fmt::format("vocab[{}].token_bytes repeats an earlier token", i));
    by_bytes.insert(bytes[i], static_cast<int32_t>(i));
    data.tokens[specials + i] = ByteAlphabet::get().encode(bytes[i]);
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (by_bytes.find({&byte, 1}) < 0) fail(fmt::format("vocab has no token for the byte {}", b));
  }
  const auto first = static_cast<int32_t>(specials);
  for (int64_t i = 0; i < words; ++i) {
    const std::string_view token = bytes[i];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const int32_t left = by_bytes.find(token.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = by_bytes.find(token.substr(cut));
      if (right >= 0)
        data.merges.push_back({first + left, first + right, first + static_cast<int32_t>(i), static_cast<uint32_t>(i)});
    }
  }

  PreTokenizerStep split{PreTokenizerStep::Kind::split_regex};
  split.pattern = config.need_string("pattern");
  PreTokenizerStep to_bytes{PreTokenizerStep::Kind::byte_level};
  to_bytes.use_regex = false;
  data.pre_tokenizer = {split, to_bytes};
  data.decoder = {DecoderStep{DecoderStep::Kind::byte_level}};

  const auto special_id = [&added](std::string_view text, std::string& out) {
    for (const AddedToken& token : added) {
      if (token.content != text) continue;
      out = token.content;
      return token.id;
    }
    return -1;
  };
  data.bos_id = special_id("<s>", data.bos_token);
  data.eos_id = special_id("</s>", data.eos_token);
  data.pad_id = special_id("<pad>", data.pad_token);
  special_id("<unk>", data.unk_token);
  if (data.bos_id >= 0) data.prefix = {data.bos_id};
  data.added = std::move(added);
  find_end_tokens(data);
  return data;
}

}  // namespace ingot
