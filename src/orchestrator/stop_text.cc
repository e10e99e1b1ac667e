#include "orchestrator/stop_text.h"

#include <algorithm>
#include <utility>

namespace ingot {

struct StopStrings::Table {
  // A stop string with Knuth, Morris and Pratt's table.
  struct Pattern {
    explicit Pattern(std::string given) : text(std::move(given)), border(text.size(), 0) {
      for (size_t i = 1; i < text.size(); ++i) border[i] = advance(border[i - 1], text[i]);
    }

    // How much of the beginning is matched after one more byte; `matched` must not be all of it.
    int32_t advance(int32_t matched, char next) const {
      while (matched > 0 && text[static_cast<size_t>(matched)] != next)
        matched = border[static_cast<size_t>(matched - 1)];
      return matched + (text[static_cast<size_t>(matched)] == next);
    }

    std::string text;
    std::vector<int32_t> border;  // [i]: the longest beginning that text[0 .. i] also ends with, itself left out
  };

  std::vector<Pattern> patterns;
};

StopStrings::StopStrings(std::vector<std::string> texts) {
  auto table = std::make_shared<Table>();
  for (std::string& text : texts)
    if (!text.empty()) table->patterns.emplace_back(std::move(text));
  if (!table->patterns.empty()) table_ = std::move(table);
}

uint64_t StopStrings::bytes() const {
  uint64_t bytes = 0;
  if (table_)
    for (const Table::Pattern& pattern : table_->patterns)
      bytes += sizeof(pattern) + pattern.text.size() * (1 + sizeof(int32_t));
  return bytes;
}

std::vector<std::string> StopStrings::texts() const {
  std::vector<std::string> texts;
  if (table_)
    for (const Table::Pattern& pattern : table_->patterns) texts.push_back(pattern.text);
  return texts;
}

StopText::StopText(StopStrings stops, bool include) : stops_(std::move(stops)), include_(include) {
  if (!stops_.empty()) matched_.resize(stops_.table()->patterns.size(), 0);
}

bool StopText::push(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return false;
  }
  const size_t before = held_.size();
  held_ += text;
  size_t first = std::string::npos, longest = 0;  // the stop string that begins first, there the longest
  int32_t open = 0;
  for (size_t i = 0; i < matched_.size(); ++i) {
    const StopStrings::Table::Pattern& pattern = stops_.table()->patterns[i];
    const size_t size = pattern.text.size();
    for (size_t at = before; at < held_.size(); ++at) {
      matched_[i] = pattern.advance(matched_[i], held_[at]);
      if (static_cast<size_t>(matched_[i]) < size) continue;
      const size_t begin = at + 1 - size;
      if (begin < first || (begin == first && size > longest)) {
        first = begin;
        longest = size;
        found_ = pattern.text;
      }
      break;
    }
    open = std::max(open, matched_[i]);
  }
  if (first != std::string::npos) {
    out.append(held_, 0, first + (include_ ? found_.size() : 0));
    held_.clear();
    std::fill(matched_.begin(), matched_.end(), 0);
    return true;
  }
  const size_t certain = held_.size() - static_cast<size_t>(open);
  out.append(held_, 0, certain);
  held_.erase(0, certain);
  return false;
}

void StopText::finish(std::string& out) {
  out += held_;
  held_.clear();
  std::fill(matched_.begin(), matched_.end(), 0);
}

void StopText::pass(std::string_view text, std::string& out) {
  finish(out);
  out += text;
}

}  // namespace ingot
