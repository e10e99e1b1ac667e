#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot::server::responses {

// A fresh id: new_id("msg_").
std::string new_id(const char* prefix);

// What a response answers to: items, and the messages of a chat that they stand for. An assistant's reasoning, text and
// calls that follow each other are one message.
struct Conversation {
  using Json = nlohmann::ordered_json;
  Conversation();

  // `input`: a text, or a list of items, checked; errors are ApiErrors that name `path`.
  void add(const Json& input, const std::string& path);
  // In front of all others. System messages at the beginning become one: many templates take no more.
  void set_instructions(const std::string& text);

  const std::shared_ptr<Json> items;     // as they are listed later, each with an id
  const std::shared_ptr<Json> messages;  // as chat completions have them; arguments are objects where they are JSON
};

}  // namespace ingot::server::responses
