#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::cli {

struct Message {
  std::string role;  // "user" or "assistant"
  std::string content;
  bool operator==(const Message&) const = default;
};

// What was said, and how much of it the model still gets to read.
class Conversation {
 public:
  std::string system;  // empty: none

  const std::vector<Message>& messages() const { return messages_; }
  size_t first_shown() const { return first_; }  // messages before this one are no longer sent

  void add(std::string role, std::string content);
  void clear();
  // Takes the last question and its answer away and returns the question; empty when there is none.
  std::string take_last_question();

  // Leaves out the oldest questions, with their answers, until `count_tokens` (of the messages as they are sent) is at
  // most `limit`. Then it makes `slack` tokens of room more, so that the beginning stays the same, and cached, for
  // some turns. Returns how many messages were left out. The last question always stays, even when it does not fit.
  size_t fit(int64_t limit, int64_t slack, const std::function<int64_t()>& count_tokens);

  // The format is chosen by the suffix: .md is for reading, all else is JSON that load() takes. Throws Error(io).
  void save(const std::string& path, std::string_view model) const;
  // Replaces everything by what a JSON file has: {"system","messages"} or a bare list of messages. Throws Error and
  // changes nothing when there is something wrong with the file.
  void load(const std::string& path);

 private:
  std::vector<Message> messages_;
  size_t first_ = 0;
};

}  // namespace ingot::cli
