#include "text/calls/gates.h"

#include "text/calls/input.h"

namespace ingot {
namespace {

constexpr size_t kMaxHeld = 4096;  // bytes that wait for what follows

}  // namespace

void ContentGate::add(std::string_view text, EventWriter& events) {
  if (passing_) return events.content(text);
  if (after_ != After::section) {
    size_t begin = 0;
    while (begin < text.size() &&
           (is_space(text[begin]) || (after_ == After::call && separator_.find(text[begin]) != separator_.npos)))
      ++begin;
    const bool all = begin == text.size();
    if (after_ != After::reasoning) held_ += text.substr(0, begin);
    if (all && held_.size() <= kMaxHeld) return;
    pass(events);
    return events.content(text.substr(begin));
  }
  held_ += text;
  if (held_.size() > kMaxHeld) pass(events);
}

void ContentGate::pass(EventWriter& events) {
  passing_ = true;
  events.content(held_);
  held_.clear();
}

void ContentGate::open(After after) {
  after_ = after;
  passing_ = false;
  held_.clear();
}

void ContentGate::refuse(EventWriter& events) {
  if (!passing_ && after_ == After::section) pass(events);
}

void ContentGate::end(EventWriter& events) {
  if (!passing_ && (after_ == After::beginning || (after_ == After::section && !strip_space(held_).empty())))
    events.content(held_);
  held_.clear();
}

void ReasoningGate::add(std::string_view text, EventWriter& events) {
  while (!text.empty()) {
    size_t spaces = 0;
    while (spaces < text.size() && is_space(text[spaces])) ++spaces;
    if (begun_) {
      held_ += text.substr(0, spaces);
      too_long_ |= held_.size() > kMaxHeld;
      if (too_long_) {
        events.reasoning(held_);
        held_.clear();
      }
    }
    text.remove_prefix(spaces);
    if (text.empty()) return;
    size_t words = 0;
    while (words < text.size() && !is_space(text[words])) ++words;
    begun_ = true;
    too_long_ = false;
    events.reasoning(held_);
    held_.clear();
    events.reasoning(text.substr(0, words));
    text.remove_prefix(words);
  }
}

}  // namespace ingot
