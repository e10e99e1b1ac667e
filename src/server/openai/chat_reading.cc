#include "server/openai/chat_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "text/dialects/dialect.h"

namespace ingot::server::openai {
namespace {

// Unlike any other in a conversation, which outlives requests and servers.
std::string new_call_id(bool short_id) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  const std::string id = fmt::format("{:016x}{:08x}", random(), static_cast<uint32_t>(random()));
  return short_id ? id.substr(0, 9) : "call_" + id;
}

}  // namespace

ChoiceReader::ChoiceReader(const ChatReading& reading)
    : reading_(reading), parser_(make_chat_parser(reading.format->dialect(), reading.options)) {}

std::vector<ChatEvent> ChoiceReader::read(const ChoiceDelta& delta) {
  using Kind = ChatEvent::Kind;
  std::vector<ChatEvent> events = parser_->feed(delta.text);
  if (delta.finish != FinishReason::none)
    for (ChatEvent& event : parser_->finish()) events.push_back(std::move(event));
  std::erase_if(events, [this](const ChatEvent& event) {
    if (event.kind == Kind::reasoning) return !reading_.include_reasoning;
    if (event.kind == Kind::content) return false;
    return event.kind == Kind::call_end || (event.index > 0 && !reading_.parallel_calls);
  });
  for (ChatEvent& event : events) {
    if (event.kind != Kind::call_begin) continue;
    while (event.id.empty() || !ids_.insert(event.id).second)
      event.id = new_call_id(reading_.format->dialect().short_ids);
  }
  return events;
}

std::string ChoiceReader::finish_reason(std::string otherwise) const {
  if (otherwise != "stop") return otherwise;
  return std::string(chat_finish_reason(*parser_, otherwise));
}

}  // namespace ingot::server::openai
