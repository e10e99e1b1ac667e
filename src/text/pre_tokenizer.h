#pragma once

#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer_data.h"
#include "text/unicode.h"
#include "text/word_scanners.h"

namespace ingot {

// Receives the words of a text, in order. A word is only valid during the call.
class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view word) = 0;
};

// Cuts text into the words that BPE works on. Read-only after construction.
class PreTokenizer {
 public:
  explicit PreTokenizer(const std::vector<PreTokenizerStep>& steps);

  // `text` is valid UTF-8. `at_start`: nothing of the input precedes it (Metaspace's "first").
  void run(std::string_view text, bool at_start, WordSink& sink) const { run_step(0, text, at_start, sink); }

 private:
  struct Span {
    size_t begin, end;
    bool is_match;
  };
  struct Step {
    PreTokenizerStep spec;
    WordScanner scanner = nullptr;  // for patterns that have one
    std::vector<Regex> regex;       // one, for other patterns
  };

  void run_step(size_t index, std::string_view text, bool at_start, WordSink& sink) const;
  void run_scanner(size_t index, WordScanner scanner, std::string_view text, bool at_start, WordSink& sink) const;
  void run_spans(size_t index, std::string_view text, bool at_start, std::vector<Span> spans, SplitBehavior behavior,
                 WordSink& sink) const;
  void run_metaspace(size_t index, std::string_view text, bool at_start, WordSink& sink) const;
  void run_digits(size_t index, std::string_view text, bool at_start, WordSink& sink) const;
  std::vector<Span> find_spans(const Step& step, std::string_view text) const;

  const CharClasses& classes_;
  std::vector<Step> steps_;
};

}  // namespace ingot
