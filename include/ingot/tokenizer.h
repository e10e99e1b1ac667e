#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct TokenizerData;  // what a reader of one format found

struct EncodeOptions {
  bool add_special = true;    // put BOS and the like around the text, where the model wants them
  bool parse_special = true;  // special tokens written in the text become that token; otherwise they are plain text
  const std::atomic<bool>* cancelled = nullptr;  // set from outside: encode() throws Error (cancelled) soon
};

// Text to token ids and back, equal to Hugging Face `tokenizers` for the same model. Immutable; every method may be
// called from many threads at once.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerData data);  // bad_file or declined when the data makes no sense or is not supported
  ~Tokenizer();

  // Broken UTF-8 is replaced by U+FFFD first. Cost is O(n log n) for any text.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // Always valid UTF-8. Ids out of range are skipped.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  int32_t vocab_size() const;  // ids are 0 .. vocab_size - 1; some may be holes
  // The bytes the token adds in the middle of a text; may be part of a character.
  std::string token_bytes(int32_t id) const;
  const std::string& token_text(int32_t id) const;  // as stored in the vocabulary; empty for a hole or a bad id
  int32_t find(std::string_view token_text) const;  // -1 when there is none
  bool is_special(int32_t id) const;

  int32_t bos_id() const;  // -1 when there is none; likewise the others
  int32_t eos_id() const;
  int32_t pad_id() const;
  int32_t unk_id() const;
  const std::vector<int32_t>& end_ids() const;  // every token that ends a generation, eos first
  bool is_end(int32_t id) const;

  // Texts for chat templates; empty when there is none.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  const std::string& pad_token() const;
  const std::string& unk_token() const;

  const std::optional<std::string>& chat_template() const;
  const std::map<std::string, std::string>& named_templates() const;  // "tool_use", ...; "default" is chat_template()

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

// The tokenizer of a model: a GGUF file, or a folder with tokenizer.json (and tokenizer_config.json and
// chat_template.jinja) or tekken.json. Throws `declined` naming what is missing when there is none: the model can still
// be run on token ids.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& model);

}  // namespace ingot
