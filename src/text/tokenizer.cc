#include "ingot/tokenizer.h"

#include <algorithm>

#include "core/cancel.h"
#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/detokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace ingot {
namespace {

constexpr size_t kLongestText = size_t{1} << 30;
constexpr size_t kMostTokens = size_t{1} << 24;
constexpr size_t kLongestToken = 1 << 16;

void make_valid(std::string& text) {
  if (!is_valid_utf8(text)) text = replace_invalid_utf8(text);
}

// Everything later code relies on: ids in range, texts valid UTF-8.
TokenizerData check(TokenizerData data) {
  const auto fail = [&data](const std::string& what) { throw Error(ErrorKind::bad_file, data.source + ": " + what); };
  const size_t count = data.tokens.size();
  if (count == 0) fail("the vocabulary is empty");
  if (count > kMostTokens)
    fail(fmt::format("the vocabulary has {} tokens, at most {} are supported", count, kMostTokens));
  data.in_model.resize(count, 1);
  const auto in_range = [count](int32_t id) { return id >= 0 && static_cast<size_t>(id) < count; };
  for (size_t id = 0; id < count; ++id) {
    if (data.tokens[id].size() > kLongestToken) {
      fail(fmt::format("token {} is {} bytes long, at most {} are supported", id, data.tokens[id].size(),
                       kLongestToken));
    }
    make_valid(data.tokens[id]);
  }
  for (const Merge& merge : data.merges) {
    for (int32_t id : {merge.left, merge.right, merge.result})
      if (!in_range(id)) fail(fmt::format("a merge names token {}, the vocabulary has {}", id, count));
  }
  for (AddedToken& token : data.added) {
    if (!in_range(token.id))
      fail(fmt::format("added token \"{}\" has id {}, the vocabulary has {}", token.content, token.id, count));
    make_valid(token.content);
  }
  for (const auto* ids : {&data.prefix, &data.suffix, &data.end_ids})
    for (int32_t id : *ids)
      if (!in_range(id)) fail(fmt::format("a special token has id {}, the vocabulary has {}", id, count));
  for (int32_t id : {data.unk_id, data.bos_id, data.eos_id, data.pad_id})
    if (id != -1 && !in_range(id)) fail(fmt::format("a special token has id {}, the vocabulary has {}", id, count));
  return data;
}

// Runs one text through BPE, word by word.
class BpeSink final : public WordSink {
 public:
  BpeSink(const Bpe& bpe, Bpe::Scratch& scratch, std::vector<int32_t>& out, const CancelFlag* cancelled)
      : bpe_(bpe), scratch_(scratch), out_(out), cancelled_(cancelled) {}
  void word(std::string_view word) override {
    check_cancelled(cancelled_);
    bpe_.encode(word, scratch_, out_, cancelled_);
  }

 private:
  const Bpe& bpe_;
  Bpe::Scratch& scratch_;
  std::vector<int32_t>& out_;
  const CancelFlag* cancelled_;
};

// Errors about patterns do not know the file: name it.
template <typename Make>
auto naming(const std::string& source, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.kind(), source + ": " + error.what());
  }
}

const std::string kEmpty;

}  // namespace

DecodeRules decode_rules_of(const TokenizerData& data) {
  using Kind = DecoderStep::Kind;
  DecodeRules rules;
  rules.join_with_spaces = !data.has_decoder;
  bool fused = false;
  const auto decline = [&data](std::string_view what) {
    throw_error(ErrorKind::declined, "{}: decoder: {} is not supported", data.source, what);
  };
  for (size_t i = 0; i < data.decoder.size(); ++i) {
    const DecoderStep& step = data.decoder[i];
    if (rules.byte_level && step.kind != Kind::fuse) decline("a step after ByteLevel");
    switch (step.kind) {
      case Kind::byte_level:
        if (i > 0) decline("ByteLevel after another step");
        rules.byte_level = true;
        break;
      case Kind::replace_text:
        if (rules.byte_fallback || fused) decline("Replace after ByteFallback or Fuse");
        if (!step.pattern.empty()) rules.replace.emplace_back(step.pattern, step.content);
        break;
      case Kind::metaspace:
        if (rules.byte_fallback || fused) decline("Metaspace after ByteFallback or Fuse");
        if (step.drop_first) rules.drop_in_first = step.pattern;
        rules.replace.emplace_back(step.pattern, " ");
        break;
      case Kind::byte_fallback:
        if (fused) decline("ByteFallback after Fuse");
        rules.byte_fallback = true;
        break;
      case Kind::fuse: fused = true; break;
      case Kind::strip:
        if (!fused) decline("Strip before Fuse");
        if (step.stop > 0) decline("Strip at the end");
        if (rules.strip_most > 0) decline("a second Strip");
        rules.strip = step.content;
        rules.strip_most = step.start;
        break;
    }
  }
  return rules;
}

Tokenizer::Impl::Impl(TokenizerData tokenizer_data)
    : data(check(std::move(tokenizer_data))),
      decode_rules(decode_rules_of(data)),
      normalizer(naming(data.source, [this] { return Normalizer(data.normalizer); })),
      pre_tokenizer(naming(data.source, [this] { return PreTokenizer(data.pre_tokenizer); })),
      bpe(data) {
  special.assign(data.tokens.size(), 0);
  by_text.reserve(data.tokens.size());
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (!data.tokens[id].empty()) by_text.insert(data.tokens[id], static_cast<int32_t>(id));
  for (const AddedToken& token : data.added) {
    special[token.id] = token.special;
    by_text.insert(data.tokens[token.id], token.id);
    if (token.normalized) {
      normalized_added.add(token, normalizer.run(token.content));
    } else {
      raw_added.add(token, token.content);
    }
  }
}

int Tokenizer::Impl::fallback_byte(int32_t id) const {
  const std::string& text = data.tokens[id];
  if (!decode_rules.byte_fallback || text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (char c : {text[3], text[4]}) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::string Tokenizer::Impl::piece(int32_t id, bool first) const {
  const std::string& text = data.tokens[id];
  if (decode_rules.byte_level) {
    std::string bytes;
    return ByteAlphabet::get().decode(text, bytes) ? bytes : text;
  }
  std::string out =
      first && !decode_rules.drop_in_first.empty() ? replace_all(text, decode_rules.drop_in_first, "") : text;
  for (const auto& [pattern, content] : decode_rules.replace) out = replace_all(out, pattern, content);
  return out;
}

std::unique_ptr<Bpe::Scratch> Tokenizer::Impl::take_scratch() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Bpe::Scratch> scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Bpe::Scratch>();
}

void Tokenizer::Impl::give_scratch(std::unique_ptr<Bpe::Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

Tokenizer::Tokenizer(TokenizerData data) : impl_(std::make_unique<Impl>(std::move(data))) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kLongestText) {
    throw_error(ErrorKind::bad_call, "a text of {} bytes is too long to tokenize, the limit is {}", text.size(),
                kLongestText);
  }
  std::string fixed;
  if (!is_valid_utf8(text)) {
    fixed = replace_invalid_utf8(text);
    text = fixed;
  }
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 8);
  if (options.add_special) out = impl_->data.prefix;

  std::unique_ptr<Bpe::Scratch> scratch = impl_->take_scratch();
  BpeSink sink(impl_->bpe, *scratch, out, options.cancelled);
  std::vector<AddedTokenMatcher::Piece> raw, pieces;
  impl_->raw_added.split(text, options.parse_special, raw);
  std::string normalized;
  for (const AddedTokenMatcher::Piece& segment : raw) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
      continue;
    }
    std::string_view part = text.substr(segment.begin, segment.end - segment.begin);
    if (!impl_->normalizer.empty()) {
      normalized = impl_->normalizer.run(part);
      part = normalized;
    }
    pieces.clear();
    impl_->normalized_added.split(part, options.parse_special, pieces);
    for (const AddedTokenMatcher::Piece& piece : pieces) {
      if (piece.id >= 0) {
        out.push_back(piece.id);
        continue;
      }
      const bool at_start = segment.begin == 0 && piece.begin == 0;
      impl_->pre_tokenizer.run(part.substr(piece.begin, piece.end - piece.begin), at_start, sink);
    }
  }
  impl_->give_scratch(std::move(scratch));
  if (options.add_special) out.insert(out.end(), impl_->data.suffix.begin(), impl_->data.suffix.end());
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string out;
  for (int32_t id : ids) detokenizer.push(id, out);
  detokenizer.finish(out);
  return out;
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->data.tokens.size()); }

std::string Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const int byte = impl_->fallback_byte(id);
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : impl_->piece(id, false);
}

const std::string& Tokenizer::token_text(int32_t id) const {
  return id < 0 || id >= vocab_size() ? kEmpty : impl_->data.tokens[id];
}

int32_t Tokenizer::find(std::string_view token_text) const { return impl_->by_text.find(token_text); }

bool Tokenizer::is_special(int32_t id) const { return id >= 0 && id < vocab_size() && impl_->special[id]; }

int32_t Tokenizer::bos_id() const { return impl_->data.bos_id; }
int32_t Tokenizer::eos_id() const { return impl_->data.eos_id; }
int32_t Tokenizer::pad_id() const { return impl_->data.pad_id; }
int32_t Tokenizer::unk_id() const { return impl_->data.unk_id; }
const std::vector<int32_t>& Tokenizer::end_ids() const { return impl_->data.end_ids; }
bool Tokenizer::is_end(int32_t id) const {
  return std::find(end_ids().begin(), end_ids().end(), id) != end_ids().end();
}

const std::string& Tokenizer::bos_token() const { return impl_->data.bos_token; }
const std::string& Tokenizer::eos_token() const { return impl_->data.eos_token; }
const std::string& Tokenizer::pad_token() const { return impl_->data.pad_token; }
const std::string& Tokenizer::unk_token() const { return impl_->data.unk_token; }
const std::optional<std::string>& Tokenizer::chat_template() const { return impl_->data.chat_template; }
const std::map<std::string, std::string>& Tokenizer::named_templates() const { return impl_->data.named_templates; }

}  // namespace ingot
