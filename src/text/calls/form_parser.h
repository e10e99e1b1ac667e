#pragma once

#include <memory>

#include "text/calls/parser.h"

namespace ingot {

// For the dialects that are made of forms.
std::unique_ptr<ChatParser> make_form_parser(const Dialect& dialect, const ChatParserOptions& options);

}  // namespace ingot
