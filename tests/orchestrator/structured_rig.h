#pragma once

#include <algorithm>

#include "grammar/matcher.h"
#include "orchestrator/llm_rig.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_data.h"

// A tiny model under grammars: a tokenizer whose words they know, requests that draw, and whether an answer holds.
namespace ingot::testing {

inline constexpr size_t kStructuredVocab = 331;  // of the fixture llama-bf16-tied
inline constexpr int32_t kStructuredEnd = 257;

// The bytes, two special tokens, and words with all their beginnings; the fixture's weights know nothing of any of
// them.
inline std::shared_ptr<const Tokenizer> word_tokenizer() {
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  TokenizerData data;
  data.source = "words";
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(alphabet.encode(std::string(1, static_cast<char>(byte))));
  data.tokens.insert(data.tokens.end(), {"<s>", "<end>"});
  for (const std::string word : {"{\"", "\":", "\",", "customer", "address", "true", "false", "null", ", \"", "\"}"}) {
    int32_t left = static_cast<uint8_t>(word[0]);
    for (size_t length = 2; length <= word.size(); ++length) {
      const std::string text = alphabet.encode(word.substr(0, length));
      const auto known = std::find(data.tokens.begin(), data.tokens.end(), text);
      const auto id = static_cast<int32_t>(known - data.tokens.begin());
      if (known == data.tokens.end()) {
        data.merges.push_back(
            {left, static_cast<uint8_t>(word[length - 1]), id, static_cast<uint32_t>(data.merges.size())});
        data.tokens.push_back(text);
      }
      left = id;
    }
  }
  while (data.tokens.size() < kStructuredVocab) data.tokens.push_back("w" + std::to_string(data.tokens.size()));
  data.in_model.assign(data.tokens.size(), 1);
  for (int32_t id = 256; id < 258; ++id) {
    data.in_model[id] = 0;
    data.added.push_back({.id = id, .content = data.tokens[id], .special = true});
  }
  data.byte_level = true;
  data.pre_tokenizer = {{.kind = PreTokenizerStep::Kind::byte_level}};
  data.decoder = {{.kind = DecoderStep::Kind::byte_level}};
  data.eos_id = kStructuredEnd;
  data.end_ids = {kStructuredEnd};
  return std::make_shared<const Tokenizer>(std::move(data));
}

inline LlmOptions structured_options() {
  LlmOptions options = tiny_options("llama-bf16-tied");
  options.engine.max_model_len = 200;
  options.engine.kv_blocks = 512;
  return options;
}

inline std::unique_ptr<Llm> structured_llm(const LlmOptions& options) {
  return std::make_unique<Llm>(Engine::load(options.engine), word_tokenizer(), options);
}

inline StructuredOutput structured(StructuredOutput::Kind kind, std::string text,
                                   std::vector<std::string> choices = {}) {
  StructuredOutput out;
  out.kind = kind;
  out.text = std::move(text);
  out.choices = std::move(choices);
  return out;
}

// Objects whose texts are short whatever the model thinks.
inline constexpr const char* kCustomer =
    R"({"type":"object","properties":{"customer":{"enum":["address","a","true"]},"address":{"type":"integer","minimum":0,"maximum":99},"ok":{"type":"boolean"}},"required":["customer","address","ok"],"additionalProperties":false})";

inline GenerationRequest structured_request(const StructuredOutput& what, uint32_t seed, int64_t max_tokens = 120) {
  GenerationRequest request = greedy(random_ids(5 + seed % 20, kStructuredVocab, seed % 3), max_tokens);
  request.ignore_eos = false;
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.structured = what;
  return request;
}

// What the answer is under its grammar: complete when it ended by itself, a beginning otherwise.
inline void expect_holds(Llm& llm, StructuredOutput what, const Choice& choice) {
  llm.compile(what);
  grammar::Matcher matcher(what.compiled);
  const bool stopped = choice.finish == FinishReason::stop;
  for (size_t i = 0; i < choice.token_ids.size(); ++i) {
    const bool last = i + 1 == choice.token_ids.size();
    if (last && stopped) {
      EXPECT_TRUE(llm.tokenizer()->is_end(choice.token_ids[i]) || choice.token_ids[i] == 2);
    }
    EXPECT_TRUE(matcher.accept(choice.token_ids[i])) << choice.text;
  }
  EXPECT_EQ(matcher.is_finished(), stopped) << choice.text;
  if (!stopped) {
    EXPECT_EQ(choice.finish, FinishReason::length);
  }
}

}  // namespace ingot::testing
