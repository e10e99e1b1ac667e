#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ingot/answer_frame.h"

namespace ingot {

// Counts the tokens of an answer's block of reasoning, and says what closes it when there were enough.
class ThinkingBudget {
 public:
  ThinkingBudget(const AnswerFrame::Reasoning& block, int64_t tokens);

  void take(std::string_view bytes);  // of one more token
  // The block is open, and its tokens are used up.
  bool spent() const { return place_ == Place::inside && used_ >= tokens_; }
  const std::string& close() const { return close_; }
  std::string missing() const;  // of the mark that closes the block

 private:
  enum class Place { before, inside, behind };

  void look_for_close();

  const std::string open_, close_;
  const int64_t tokens_;
  Place place_;
  int64_t used_ = 0;
  std::string text_;  // before: all of it; inside: its end, where the mark may have begun
};

}  // namespace ingot
