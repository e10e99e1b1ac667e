#include "cli/conversation.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/whole_file.h"

namespace ingot::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string markdown(const Conversation& conversation, std::string_view model) {
  std::string out = fmt::format("# Conversation with {}\n", model);
  if (!conversation.system.empty()) out += "\n## System\n\n" + conversation.system + "\n";
  for (const Message& message : conversation.messages())
    out += fmt::format("\n## {}\n\n{}\n", message.role == "user" ? "You" : "Answer", message.content);
  return out;
}

std::string json(const Conversation& conversation, std::string_view model) {
  Json out = {{"model", model}};
  if (!conversation.system.empty()) out["system"] = conversation.system;
  out["messages"] = Json::array();
  for (const Message& message : conversation.messages())
    out["messages"].push_back({{"role", message.role}, {"content", message.content}});
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void Conversation::add(std::string role, std::string content) {
  messages_.push_back({std::move(role), std::move(content)});
}

void Conversation::clear() {
  messages_.clear();
  first_ = 0;
}

std::string Conversation::take_last_question() {
  while (!messages_.empty()) {
    Message last = std::move(messages_.back());
    messages_.pop_back();
    if (first_ > messages_.size()) first_ = messages_.size();
    if (last.role == "user") return std::move(last.content);
  }
  return {};
}

size_t Conversation::fit(int64_t limit, int64_t slack, const std::function<int64_t()>& count_tokens) {
  const size_t before = first_;
  for (int64_t most = limit; first_ < messages_.size() && count_tokens() > most; most = limit - slack) {
    size_t next = first_ + 1;
    while (next < messages_.size() && messages_[next].role != "user") ++next;
    if (next >= messages_.size()) break;
    first_ = next;
  }
  return first_ - before;
}

void Conversation::save(const std::string& path, std::string_view model) const {
  const bool for_reading = path.ends_with(".md") || path.ends_with(".markdown");
  const std::string text = for_reading ? markdown(*this, model) : json(*this, model);
  write_whole(path, path + ".part", {std::as_bytes(std::span(text))});  // what was said is nobody else's business
}

void Conversation::load(const std::string& path) {
  const auto refuse = [&path](std::string_view what) {
    throw_error(ErrorKind::bad_file, "{}: {}; a conversation is JSON as /save writes it", path, what);
  };
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw_error(ErrorKind::io, "{}: cannot be read", path);
  Json file;
  try {
    file = parse_ordered_json(std::string(std::istreambuf_iterator<char>(stream), {}), path);
  } catch (const JsonError&) {
    refuse("not valid JSON");
  }
  const Json* list = &file;
  Conversation read;
  if (file.is_object()) {
    if (file.contains("system") && file["system"].is_string()) read.system = file["system"].get<std::string>();
    if (!file.contains("messages")) refuse("has no \"messages\"");
    list = &file["messages"];
  }
  if (!list->is_array()) refuse("has no list of messages");
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& message = (*list)[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string())
      refuse(fmt::format("message {} has no \"role\" and \"content\" that are texts", i));
    const std::string role = message["role"].get<std::string>();
    if (role == "system" && i == 0)
      read.system = message["content"].get<std::string>();
    else if (role == "user" || role == "assistant")
      read.add(role, message["content"].get<std::string>());
    else
      refuse(fmt::format("message {} has the role \"{}\", which is neither user nor assistant", i, role));
  }
  *this = std::move(read);
}

}  // namespace ingot::cli
