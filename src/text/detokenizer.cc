#include "text/detokenizer.h"

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace ingot {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : impl_(tokenizer.impl()), skip_special_(skip_special) {
  reset();
}

void Detokenizer::reset() {
  first_ = true;
  strip_left_ = impl_.decode_rules.strip_most;
  bytes_.clear();
}

std::string Detokenizer::push(int32_t id) {
  std::string out;
  push(id, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  finish(out);
  return out;
}

void Detokenizer::push(int32_t id, std::string& out) {
  if (id < 0 || static_cast<size_t>(id) >= impl_.data.tokens.size()) return;
  if (skip_special_ && impl_.special[id]) return;
  const bool first = first_;
  first_ = false;
  const DecodeRules& rules = impl_.decode_rules;
  if (rules.join_with_spaces && !first) emit(" ", out);
  if (rules.byte_level) {
    bytes_ += impl_.piece(id, first);
    flush_bytes(out, false);
    return;
  }
  if (const int byte = impl_.fallback_byte(id); byte >= 0) {
    bytes_.push_back(static_cast<char>(byte));
    flush_bytes(out, false);
    return;
  }
  flush_bytes(out, true);
  emit(impl_.piece(id, first), out);
}

void Detokenizer::finish(std::string& out) {
  flush_bytes(out, true);
  reset();
}

void Detokenizer::emit(std::string_view text, std::string& out) {
  const std::string& strip = impl_.decode_rules.strip;
  while (strip_left_ > 0 && !text.empty()) {
    if (!text.starts_with(strip)) {
      strip_left_ = 0;
      break;
    }
    text.remove_prefix(strip.size());
    --strip_left_;
  }
  out.append(text);
}

// Hands out whole characters. Broken bytes become U+FFFD: in a byte-level text one for each maximal subpart, in a run
// of byte-fallback tokens one for each broken byte, as SentencePiece does. (The decoder of Hugging Face gives up the
// whole characters of a broken run too; a stream has shown them already.) A character that could still be completed
// waits unless `all`.
void Detokenizer::flush_bytes(std::string& out, bool all) {
  size_t done = 0;
  while (done < bytes_.size()) {
    const Utf8Step step = inspect_utf8(std::string_view(bytes_).substr(done));
    if (step.status == Utf8Status::valid) {
      emit(std::string_view(bytes_).substr(done, step.length), out);
      done += step.length;
      continue;
    }
    if (step.status == Utf8Status::incomplete && !all) break;
    emit(kReplacementUtf8, out);
    done += impl_.decode_rules.byte_level ? step.length : 1;
  }
  bytes_.erase(0, done);
}

}  // namespace ingot
