#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::kimi_k2{
    .name = "kimi_k2",
    .models = "Kimi K2",
    .template_marks = {{"<|tool_call_begin|>", "<|tool_call_argument_begin|>"}},
    .order = 20,
    .calls_end_reasoning = true,
    .forms = {{.pieces = {{Piece::Kind::text, "<|tool_call_begin|>"},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::named_id},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::text, "<|tool_call_argument_begin|>"},
                          {Piece::Kind::arguments},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::maybe, "<|tool_call_end|>"}}}},
    .section_open = "<|tool_calls_section_begin|>",
    .section_close = "<|tool_calls_section_end|>",
};

}  // namespace ingot
