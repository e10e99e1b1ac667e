#include "orchestrator/grammars.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "grammar/tokenizer_vocabulary.h"
#include "ingot/tokenizer.h"

namespace ingot {
namespace {

using grammar::Grammar;
using Kind = StructuredOutput::Kind;

constexpr size_t kMostKept = 32;
constexpr size_t kMostKeptBytes = size_t{32} << 20;    // of grammars nobody may be using
constexpr size_t kMostAliveBytes = size_t{128} << 20;  // of all
constexpr grammar::Limits kLimits{.max_bytes = size_t{48} << 20, .max_step_time = std::chrono::milliseconds(100)};

// All that a grammar follows from: equal keys, equal grammars.
std::string key_of(const StructuredOutput& structured) {
  std::string key = fmt::format("{}{}{}:{}", static_cast<int>(structured.kind), structured.strict ? '!' : ' ',
                                structured.cache_salt.size(), structured.cache_salt);
  const AnswerFrame& frame = structured.frame;
  std::vector<std::string> parts{structured.text, frame.content_open, frame.calls};
  if (frame.reasoning) {
    parts.insert(parts.end(), {frame.reasoning->open, frame.reasoning->close, frame.reasoning->inside ? "!" : ""});
    parts.insert(parts.end(), frame.reasoning->never.begin(), frame.reasoning->never.end());
  }
  for (const std::string& part : parts) key += fmt::format("\n{}:{}", part.size(), part);
  key += frame.reasoning ? "\n!" : "\n";
  for (const std::string& choice : structured.choices) key += fmt::format("\n{}:{}", choice.size(), choice);
  return key;
}

std::shared_ptr<Grammar> compile_kind(const StructuredOutput& s, std::shared_ptr<const grammar::Vocabulary> vocabulary,
                                      const CancelFlag* cancelled) {
  const grammar::Options options{
      .strict = s.strict, .short_numbers = true, .frame = s.frame, .limits = kLimits, .cancelled = cancelled};
  switch (s.kind) {
    case Kind::none: break;
    case Kind::json_object: return Grammar::any_json(std::move(vocabulary), options);
    case Kind::json_schema: return Grammar::json_schema(std::move(vocabulary), s.text, options);
    case Kind::regex: return Grammar::regex(std::move(vocabulary), s.text, options);
    case Kind::choice: return Grammar::choice(std::move(vocabulary), s.choices, options);
    case Kind::gbnf: return Grammar::gbnf(std::move(vocabulary), s.text, options);
    case Kind::structural_tag: return Grammar::structural_tag(std::move(vocabulary), s.text, options);
    case Kind::free_text: return Grammar::free_text(std::move(vocabulary), options);
  }
  return nullptr;
}

}  // namespace

Grammars::Grammars(const Tokenizer* tokenizer, int64_t vocab, std::vector<int32_t> end_ids)
    : tokenizer_(tokenizer), vocab_(vocab), end_ids_(std::move(end_ids)) {}

std::shared_ptr<const grammar::Vocabulary> Grammars::vocabulary() {
  std::call_once(vocabulary_once_, [this] {
    vocabulary_ = grammar::make_vocabulary(*tokenizer_, static_cast<size_t>(vocab_), end_ids_);
  });
  return vocabulary_;
}

void Grammars::compile(StructuredOutput& structured, const CancelFlag* cancelled) {
  if (structured.kind == Kind::none || structured.compiled) return;
  if (tokenizer_ == nullptr) throw_bad_parameter(structured.param, "needs a tokenizer, and this model has none");
  std::string key = key_of(structured);
  structured.compiled = find(key);
  if (!structured.compiled) {
    try {
      structured.compiled = compile_kind(structured, vocabulary(), cancelled);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_call) throw;
      throw Error(ErrorKind::bad_call, structured.param + ": " + error.what(), structured.param);
    }
    keep(std::move(key), structured.compiled);
  }
  structured.text = {};
  structured.choices = {};
}

std::shared_ptr<Grammar> Grammars::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(kept_, key, &Kept::key);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front().grammar;
}

void Grammars::keep(std::string key, std::shared_ptr<Grammar> grammar) {
  const std::lock_guard lock(mutex_);
  std::erase_if(alive_, [](const auto& each) { return each.expired(); });
  alive_.push_back(grammar);
  kept_.push_front({std::move(key), std::move(grammar)});
  size_t bytes = 0, count = 0;
  std::erase_if(kept_, [&](const Kept& each) {  // from the latest to the oldest
    bytes += each.key.size() + each.grammar->bytes();
    return ++count > kMostKept || (count > 1 && bytes > kMostKeptBytes);
  });
}

void Grammars::trim() {
  std::vector<std::shared_ptr<Grammar>> alive;
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& each : alive_)
    if (auto grammar = each.lock()) {
      bytes += grammar->bytes();
      alive.push_back(std::move(grammar));
    }
  if (bytes <= kMostAliveBytes) return;
  kept_.clear();
  std::ranges::sort(alive, std::ranges::greater(), [](const auto& each) { return each->bytes(); });
  for (const auto& grammar : alive) {
    if (bytes <= kMostAliveBytes / 2) return;
    bytes -= std::min(bytes, grammar->bytes());
    grammar->forget();
  }
}

size_t Grammars::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace ingot
