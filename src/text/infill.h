#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_data.h"

namespace ingot {

class Tokenizer;

// How a model that was trained to fill in the middle is shown what stands before and after a gap.
class InfillFormat {
 public:
  struct File {
    std::string name, text;
  };

  // By what the file says of its tokens (GGUF), or by the names that the known families gave theirs. None: the model
  // has no such tokens.
  static std::optional<InfillFormat> of(const Tokenizer& tokenizer);

  // The tokens after which the model writes what belongs between `prefix` and `suffix`. `others` are files that belong
  // to the same project. Marks that are written in the texts are plain text.
  std::vector<int32_t> prompt(const Tokenizer& tokenizer, std::string_view prefix, std::string_view suffix,
                              std::span<const File> others, const std::atomic<bool>* cancelled) const;

  // What else than the end of the text ends the middle: any mark, and the ends of documents.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  InfillMarks marks_;
  bool suffix_first_ = false;
  std::vector<int32_t> ends_;
};

}  // namespace ingot
