#include "server/openai/chat_reading.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/random.h"
#include "text/dialects/dialect.h"

namespace ingot::server::openai {
namespace {

// Unlike any other in a conversation, which outlives requests and servers.
std::string new_call_id(bool short_id) {
  const std::string id = fmt::format("{:016x}{:08x}", random_word(), static_cast<uint32_t>(random_word()));
  return short_id ? id.substr(0, 9) : "call_" + id;
}

}  // namespace

const char* finish_word(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::no_token: return "stop";  // stop_reason tells why
    case FinishReason::length:
    case FinishReason::timeout: return "length";  // cut off; likewise
    default: return "abort";
  }
}

ChoiceReader::ChoiceReader(const std::optional<ChatReading>& reading) : reading_(reading ? &*reading : nullptr) {
  if (reading_ != nullptr) parser_ = make_chat_parser(reading_->format->dialect(), reading_->options);
}

std::vector<ChatEvent> ChoiceReader::read(const ChoiceDelta& delta) {
  using Kind = ChatEvent::Kind;
  if (!parser_) {
    if (delta.text.empty()) return {};
    return {{.kind = Kind::content, .index = 0, .text = delta.text, .id = {}, .cut = false}};
  }
  std::vector<ChatEvent> events = parser_->feed(delta.text);
  if (delta.finish != FinishReason::none)
    for (ChatEvent& event : parser_->finish()) events.push_back(std::move(event));
  std::erase_if(events, [this](const ChatEvent& event) {
    if (event.kind == Kind::reasoning) return !reading_->include_reasoning;
    if (event.kind == Kind::content) return false;
    return event.kind == Kind::call_end || (event.index > 0 && !reading_->parallel_calls);
  });
  for (ChatEvent& event : events) {
    if (event.kind != Kind::call_begin) continue;
    while (event.id.empty() || !ids_.insert(event.id).second)
      event.id = new_call_id(reading_->format->dialect().short_ids);
  }
  return events;
}

std::string ChoiceReader::finish_reason(FinishReason finish) const {
  const std::string reason(finish_word(finish));
  return parser_ && reason == "stop" ? std::string(chat_finish_reason(*parser_, reason)) : reason;
}

}  // namespace ingot::server::openai
