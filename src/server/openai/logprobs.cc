#include "server/openai/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "text/detokenizer.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinities; vLLM writes this for a token that cannot be. A float in its shortest form is not the double
// nearest to it: -0.1, not -0.10000000149.
double json_logprob(float value) {
  if (!(value > -9999.0f)) return -9999.0;
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

Json logprob_entry(const TokenNames& names, int32_t token, float logprob) {
  return {{"token", names.text(token)}, {"logprob", json_logprob(logprob)}, {"bytes", names.bytes(token)}};
}

}  // namespace

size_t count_characters(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string TokenNames::name(int32_t token) const {
  if (as_ids || tokenizer == nullptr) return fmt::format("token_id:{}", token);
  std::string bytes = tokenizer->token_bytes(token);
  if (is_valid_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

std::string TokenNames::text(int32_t token) const {
  if (as_ids || tokenizer == nullptr) return fmt::format("token_id:{}", token);
  return replace_invalid_utf8(tokenizer->token_bytes(token));
}

Json TokenNames::bytes(int32_t token) const {
  if (tokenizer == nullptr) return nullptr;
  Json list = Json::array();
  for (const char c : tokenizer->token_bytes(token)) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json chat_logprobs(const TokenNames& names, std::span<const TokenScore> scores, int32_t top) {
  Json content = Json::array();
  for (const TokenScore& score : scores) {
    Json entry = logprob_entry(names, score.token, score.logprob);
    Json others = Json::array();
    for (size_t i = 0; i < score.top.size() && i < static_cast<size_t>(top); ++i)
      others.push_back(logprob_entry(names, score.top[i].token, score.top[i].logprob));
    entry["top_logprobs"] = std::move(others);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json prompt_logprobs(const TokenNames& names, std::span<const TokenScore> scores) {
  Json list = Json::array();
  for (const TokenScore& score : scores) {
    if (score.rank == 0) {
      list.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    const auto add = [&](int32_t token, float logprob, int64_t rank) {
      entry[std::to_string(token)] = {
          {"logprob", json_logprob(logprob)}, {"rank", rank}, {"decoded_token", names.text(token)}};
    };
    add(score.token, score.logprob, score.rank);
    for (size_t i = 0; i < score.top.size(); ++i)
      if (score.top[i].token != score.token) add(score.top[i].token, score.top[i].logprob, static_cast<int64_t>(i) + 1);
    list.push_back(std::move(entry));
  }
  return list;
}

struct TextLogprobs::Lists {
  Json text_offset = Json::array();
  Json token_logprobs = Json::array();
  Json tokens = Json::array();
  Json top_logprobs = Json::array();
};

TextLogprobs::TextLogprobs(TokenNames names, bool skip_special, int32_t top)
    : names_(names), skip_special_(skip_special), top_(top), lists_(std::make_unique<Lists>()) {
  if (names_.tokenizer != nullptr) detokenizer_ = std::make_unique<Detokenizer>(*names_.tokenizer, skip_special_);
}
TextLogprobs::~TextLogprobs() = default;

void TextLogprobs::append(const TokenScore& score, size_t limit) {
  lists_->text_offset.push_back(std::min(offset_, limit));
  lists_->tokens.push_back(names_.name(score.token));
  if (detokenizer_) offset_ += count_characters(detokenizer_->push(score.token));
  if (score.rank == 0) {
    lists_->token_logprobs.push_back(nullptr);
    lists_->top_logprobs.push_back(nullptr);
    return;
  }
  lists_->token_logprobs.push_back(json_logprob(score.logprob));
  Json others = Json::object();
  for (size_t i = 0; i < score.top.size() && i < static_cast<size_t>(top_); ++i)
    others[names_.name(score.top[i].token)] = json_logprob(score.top[i].logprob);
  others[names_.name(score.token)] = json_logprob(score.logprob);
  lists_->top_logprobs.push_back(std::move(others));
}

void TextLogprobs::add_prompt(std::span<const TokenScore> scores, std::string_view text) {
  const size_t length = count_characters(text);
  for (const TokenScore& score : scores) append(score, length);
  if (detokenizer_) detokenizer_->reset();
  offset_ = length;
}

void TextLogprobs::add(std::span<const TokenScore> scores) {
  for (const TokenScore& score : scores) append(score, std::numeric_limits<size_t>::max());
}

Json TextLogprobs::take() {
  Lists taken = std::exchange(*lists_, Lists());
  return {{"text_offset", std::move(taken.text_offset)},
          {"token_logprobs", std::move(taken.token_logprobs)},
          {"tokens", std::move(taken.tokens)},
          {"top_logprobs", std::move(taken.top_logprobs)}};
}

}  // namespace ingot::server::openai
