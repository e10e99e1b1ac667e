#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::hermes{
    .name = "hermes",
    .models = "Hermes 2 and 3, Qwen2.5, Qwen3, QwQ, MiMo, SmolLM3, Granite 4",
    .template_marks = {{"<tool_call>"}},
    .order = 60,
    .calls_end_reasoning = true,
    .forms = {{.pieces = {{Piece::Kind::text, "<tool_call>"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::call},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "</tool_call>"}}}},
    .separator = "\n",
    .ignored = {"</tool_call>"},
};

}  // namespace ingot
