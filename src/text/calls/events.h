#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace ingot {

// What a piece of a model's answer means. Texts are whole characters of UTF-8; those of one kind and index belong
// together in their order.
struct ChatEvent {
  enum class Kind { content, reasoning, call_begin, arguments, call_end };
  Kind kind;
  int index = 0;     // of a call, from 0
  std::string text;  // content, reasoning, a function's name, or a part of its arguments, which are JSON
  std::string id;    // call_begin: where the model gave the call one
  bool cut = false;  // call_end: the text ended before the call did
};

// Makes the events of one answer; texts that follow each other become one event.
class EventWriter {
 public:
  void content(std::string_view text) { add(ChatEvent::Kind::content, 0, text); }
  void reasoning(std::string_view text) { add(ChatEvent::Kind::reasoning, 0, text); }
  void begin_call(std::string name, std::string id) {
    events_.push_back({ChatEvent::Kind::call_begin, calls_++, std::move(name), std::move(id)});
    in_call_ = true;
  }
  void arguments(std::string_view text) { add(ChatEvent::Kind::arguments, calls_ - 1, text); }
  void end_call(bool cut) {
    events_.push_back({.kind = ChatEvent::Kind::call_end, .index = calls_ - 1, .text = {}, .id = {}, .cut = cut});
    in_call_ = false;
  }

  bool in_call() const { return in_call_; }
  int calls() const { return calls_; }  // begun so far
  std::vector<ChatEvent> take() {
    // What is too long to be a name is given up where the limit is, be that inside a character.
    for (ChatEvent& event : events_)
      if (!is_valid_utf8(event.text)) event.text = replace_invalid_utf8(event.text);
    return std::exchange(events_, {});
  }

 private:
  void add(ChatEvent::Kind kind, int index, std::string_view text) {
    if (text.empty()) return;
    if (!events_.empty() && events_.back().kind == kind && events_.back().index == index) {
      events_.back().text += text;
      return;
    }
    events_.push_back({kind, index, std::string(text), {}});
  }

  std::vector<ChatEvent> events_;
  int calls_ = 0;
  bool in_call_ = false;
};

}  // namespace ingot
