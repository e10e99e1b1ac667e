#pragma once

#include <memory>

#include "text/calls/parser.h"

namespace ingot {

// For answers made of messages, each in a channel: <|channel|>analysis<|message|>...<|end|><|start|>assistant...
std::unique_ptr<ChatParser> make_harmony_parser(const ChatParserOptions& options);

}  // namespace ingot
