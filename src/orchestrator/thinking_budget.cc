#include "orchestrator/thinking_budget.h"

#include <algorithm>

#include "grammar/vocabulary.h"

namespace ingot {

ThinkingBudget::ThinkingBudget(const AnswerFrame::Reasoning& block, int64_t tokens)
    : open_(block.open), close_(block.close), tokens_(tokens), place_(block.inside ? Place::inside : Place::before) {}

void ThinkingBudget::take(std::string_view bytes) {
  if (place_ == Place::behind) return;
  std::ranges::copy_if(bytes, std::back_inserter(text_),
                       [](char c) { return static_cast<uint8_t>(c) != grammar::kSpecialMark; });
  if (place_ == Place::inside) {
    ++used_;
    return look_for_close();
  }
  if (text_.starts_with(open_)) {
    place_ = Place::inside;
    text_.erase(0, open_.size());
    look_for_close();
  } else if (!open_.starts_with(text_)) {
    place_ = Place::behind;
  }
}

void ThinkingBudget::look_for_close() {
  if (text_.find(close_) != text_.npos) place_ = Place::behind;
  if (text_.size() >= close_.size()) text_.erase(0, text_.size() - close_.size() + 1);
}

std::string ThinkingBudget::missing() const {
  size_t begun = std::min(text_.size(), close_.size());
  while (!close_.starts_with(std::string_view(text_).substr(text_.size() - begun))) --begun;
  return close_.substr(begun);
}

}  // namespace ingot
