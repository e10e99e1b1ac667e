#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ingot {

// What a model's answer has around the text that is held to something: its reasoning, its marks, its calls.
struct AnswerFrame {
  struct Reasoning {
    std::string open, close;         // what the block stands between
    bool inside = false;             // the prompt has opened it; otherwise it may be left out
    std::vector<std::string> never;  // texts that are not in it: they would end it
  };
  std::optional<Reasoning> reasoning;  // comes first
  std::string content_open;            // in front of the text
  std::string calls;                   // may stand instead of the text: JSON, a structural tag; empty: nothing may
};

}  // namespace ingot
