#include "text/pre_tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "text/normalizer.h"

namespace ingot {
namespace {

using Kind = PreTokenizerStep::Kind;
constexpr size_t kMostSteps = 32;

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps) : classes_(CharClasses::get()) {
  if (steps.size() > kMostSteps) {
    throw_error(ErrorKind::declined, "the pre-tokenizer has {} steps, at most {} are supported", steps.size(),
                kMostSteps);
  }
  for (const PreTokenizerStep& spec : steps) {
    Step step{spec, nullptr, {}};
    if (spec.kind == Kind::byte_level && spec.use_regex) step.scanner = scan_gpt2;
    if (spec.kind == Kind::split_regex) {
      // These patterns match everywhere, so only these two combinations are the same as cutting at every match.
      const bool every_match = spec.behavior == SplitBehavior::isolated && !spec.invert;
      const bool all_but_gaps = spec.behavior == SplitBehavior::removed && spec.invert;
      if (every_match || all_but_gaps) step.scanner = find_scanner(spec.pattern);
      if (!step.scanner) step.regex.emplace_back(spec.pattern);
    }
    steps_.push_back(std::move(step));
  }
}

void PreTokenizer::run_step(size_t index, std::string_view text, bool at_start, WordSink& sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) {
    sink.word(text);
    return;
  }
  const Step& step = steps_[index];
  switch (step.spec.kind) {
    case Kind::byte_level: {
      std::string with_space;
      if (step.spec.add_prefix_space && text[0] != ' ') {
        with_space.reserve(text.size() + 1);
        with_space.append(" ").append(text);
        text = with_space;
      }
      if (step.scanner) {
        run_scanner(index, step.scanner, text, at_start, sink);
      } else {
        run_step(index + 1, text, at_start, sink);
      }
      return;
    }
    case Kind::split_regex:
      if (step.scanner) {
        run_scanner(index, step.scanner, text, at_start, sink);
        return;
      }
      [[fallthrough]];
    case Kind::split_text: run_spans(index, text, at_start, find_spans(step, text), step.spec.behavior, sink); return;
    case Kind::digits: run_digits(index, text, at_start, sink); return;
    case Kind::metaspace: run_metaspace(index, text, at_start, sink); return;
  }
}

void PreTokenizer::run_scanner(size_t index, WordScanner scanner, std::string_view text, bool at_start,
                               WordSink& sink) const {
  const char* p = text.data();
  const char* end = p + text.size();
  const bool last = index + 1 == steps_.size();
  while (p != end) {
    const char* stop = scanner(classes_, p, end);
    const std::string_view piece(p, static_cast<size_t>(stop - p));
    if (last) {
      sink.word(piece);
    } else {
      run_step(index + 1, piece, at_start && p == text.data(), sink);
    }
    p = stop;
  }
}

std::vector<PreTokenizer::Span> PreTokenizer::find_spans(const Step& step, std::string_view text) const {
  std::vector<Regex::Match> matches;
  if (step.spec.kind == Kind::split_regex) {
    step.regex[0].find_all(text, matches);
  } else if (!step.spec.pattern.empty()) {
    const std::string& pattern = step.spec.pattern;
    for (size_t i = text.find(pattern); i != std::string_view::npos; i = text.find(pattern, i + pattern.size())) {
      matches.push_back({i, i + pattern.size()});
    }
  }
  std::vector<Span> spans;
  size_t done = 0;
  const bool match_flag = !step.spec.invert;
  for (const Regex::Match& match : matches) {
    if (done != match.begin) spans.push_back({done, match.begin, !match_flag});
    spans.push_back({match.begin, match.end, match_flag});
    done = match.end;
  }
  if (done != text.size()) spans.push_back({done, text.size(), !match_flag});
  return spans;
}

void PreTokenizer::run_spans(size_t index, std::string_view text, bool at_start, std::vector<Span> spans,
                             SplitBehavior behavior, WordSink& sink) const {
  std::vector<Span> cut;
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::isolated: cut = std::move(spans); break;
    case SplitBehavior::removed:
      for (const Span& span : spans)
        if (!span.is_match) cut.push_back(span);
      break;
    case SplitBehavior::contiguous:
      for (const Span& span : spans) {
        if (span.is_match == previous_match && !cut.empty()) {
          cut.back().end = span.end;
        } else {
          cut.push_back(span);
        }
        previous_match = span.is_match;
      }
      break;
    case SplitBehavior::merged_with_previous:
      for (const Span& span : spans) {
        if (span.is_match && !previous_match && !cut.empty()) {
          cut.back().end = span.end;
        } else {
          cut.push_back(span);
        }
        previous_match = span.is_match;
      }
      break;
    case SplitBehavior::merged_with_next:
      for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
        if (span->is_match && !previous_match && !cut.empty()) {
          cut.back().begin = span->begin;
        } else {
          cut.push_back(*span);
        }
        previous_match = span->is_match;
      }
      std::reverse(cut.begin(), cut.end());
      break;
  }
  for (const Span& span : cut) {
    run_step(index + 1, text.substr(span.begin, span.end - span.begin), at_start && span.begin == 0, sink);
  }
}

void PreTokenizer::run_digits(size_t index, std::string_view text, bool at_start, WordSink& sink) const {
  const bool individual = steps_[index].spec.individual_digits;
  size_t start = 0;
  bool in_digits = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_valid_utf8(text.data() + i);
    const bool digit = classes_[c.code] & kNumeric;
    if (i > start && (digit != in_digits || (digit && individual))) {
      run_step(index + 1, text.substr(start, i - start), at_start && start == 0, sink);
      start = i;
    }
    in_digits = digit;
    i += c.length;
  }
  run_step(index + 1, text.substr(start), at_start && start == 0, sink);
}

void PreTokenizer::run_metaspace(size_t index, std::string_view text, bool at_start, WordSink& sink) const {
  const PreTokenizerStep& spec = steps_[index].spec;
  std::string marked = replace_all(text, " ", spec.replacement);
  const bool prepend =
      spec.prepend_scheme == PrependScheme::always || (spec.prepend_scheme == PrependScheme::first && at_start);
  if (prepend && !marked.starts_with(spec.replacement)) marked.insert(0, spec.replacement);
  if (!spec.split) {
    run_step(index + 1, marked, at_start, sink);
    return;
  }
  std::vector<Span> spans;
  size_t done = 0;
  const size_t length = spec.replacement.size();
  for (size_t i = marked.find(spec.replacement); i != std::string::npos;
       i = marked.find(spec.replacement, i + length)) {
    if (done != i) spans.push_back({done, i, false});
    spans.push_back({i, i + length, true});
    done = i + length;
  }
  if (done != marked.size()) spans.push_back({done, marked.size(), false});
  run_spans(index, marked, at_start, std::move(spans), SplitBehavior::merged_with_next, sink);
}

}  // namespace ingot
