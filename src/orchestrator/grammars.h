#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/cancel.h"
#include "grammar/grammar.h"
#include "ingot/llm.h"

namespace ingot {

class Tokenizer;

// The grammars of a model's requests: compiles them, keeps the latest of them for requests to come, and holds all that
// are in use within a number of bytes. Thread-safe.
class Grammars {
 public:
  // `tokenizer` may be null: then there are no grammars. `vocab`: the width of the logits.
  Grammars(const Tokenizer* tokenizer, int64_t vocab, std::vector<int32_t> end_ids);

  // Llm::compile().
  void compile(StructuredOutput& structured, const CancelFlag* cancelled);
  // Lets go of what was made of the largest, until all are within their bytes. Called now and then by whoever makes
  // masks.
  void trim();

  size_t kept() const;  // grammars that no request needs to hold

 private:
  struct Kept {
    std::string key;  // all that the grammar follows from
    std::shared_ptr<grammar::Grammar> grammar;
  };
  std::shared_ptr<const grammar::Vocabulary> vocabulary();
  std::shared_ptr<grammar::Grammar> find(const std::string& key);
  void keep(std::string key, std::shared_ptr<grammar::Grammar> grammar);

  const Tokenizer* tokenizer_;
  const int64_t vocab_;
  const std::vector<int32_t> end_ids_;
  std::once_flag vocabulary_once_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made for the first grammar

  mutable std::mutex mutex_;
  std::list<Kept> kept_;  // the latest first
  std::vector<std::weak_ptr<grammar::Grammar>> alive_;
};

}  // namespace ingot
