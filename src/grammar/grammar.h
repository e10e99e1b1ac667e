#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cancel.h"
#include "grammar/budget.h"
#include "grammar/vocabulary.h"
#include "ingot/answer_frame.h"

namespace ingot::grammar {

struct Program;
struct Machine;

struct Options {
  // Keys of an object in the order of the schema and numbers in their shortest form, as strict functions of OpenAI have
  // them. Otherwise keys come in any order, and 1.0 is an integer too.
  bool strict = false;
  // Numbers as one would write them: whole ones without a fraction and of at most 40 digits, others of at most 15
  // digits, which a double tells apart; no exponents. For texts that are generated: a model may go on with zeros for
  // ever.
  bool short_numbers = false;
  // White space between two parts of a JSON text, at most; JSON itself has no bound, but a model may never end.
  uint32_t max_white_space = 40;
  bool assert_formats = true;  // `format` is an assertion; otherwise an annotation
  AnswerFrame frame = {};      // around the text that the source describes
  Limits limits = {};
  const CancelFlag* cancelled = nullptr;  // set from outside: compiling throws Error (cancelled) soon
};

// What may be generated. Compiling costs about a millisecond; nothing is computed for the vocabulary in advance. Shared
// by any number of matchers and threads: what one of them has met, the others find.
// Compiling throws Error(bad_call); its param is the place in the source, "#/properties/a/pattern".
class Grammar {
 public:
  using Vocab = std::shared_ptr<const Vocabulary>;
  static std::shared_ptr<Grammar> json_schema(Vocab vocabulary, std::string schema, const Options& options = {});
  static std::shared_ptr<Grammar> any_json(Vocab vocabulary, const Options& options = {});  // an object
  static std::shared_ptr<Grammar> regex(Vocab vocabulary, std::string pattern, const Options& options = {});
  static std::shared_ptr<Grammar> choice(Vocab vocabulary, std::vector<std::string> texts, const Options& options = {});
  static std::shared_ptr<Grammar> gbnf(Vocab vocabulary, std::string source, const Options& options = {});
  // Whatever the model may write: of use behind a frame's reasoning.
  static std::shared_ptr<Grammar> free_text(Vocab vocabulary, const Options& options = {});
  // JSON with islands of a schema in free text: {"structures":[{"begin","schema","end"}],"triggers":[...]}.
  static std::shared_ptr<Grammar> structural_tag(Vocab vocabulary, std::string tag, const Options& options = {});

  ~Grammar();
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // What has been made of it so far, about; and a way back to the beginning: matchers go on, reading their texts again.
  size_t bytes() const;
  void forget();

 private:
  friend class Matcher;
  using Build = std::function<uint32_t(Program&)>;  // returns the root rule

  Grammar(Vocab vocabulary, Build build, const Options& options);
  static std::shared_ptr<Grammar> make(Vocab vocabulary, Build build, const Options& options);
  std::shared_ptr<Machine> build_machine(const CancelFlag* cancelled) const;
  std::shared_ptr<Machine> machine() const;
  // A fresh one in place of `full`, which has met more than it may keep.
  std::shared_ptr<Machine> renew(const std::shared_ptr<Machine>& full);

  Vocab vocabulary_;
  Build build_;
  Limits limits_;
  mutable std::mutex mutex_;
  std::shared_ptr<Machine> machine_;
};

}  // namespace ingot::grammar
