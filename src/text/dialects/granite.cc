#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::granite{
    .name = "granite",
    .models = "Granite 3",
    .template_marks = {{"<|start_of_role|>", "<|tool_call|>"}},
    .order = 50,
    .reasoning = {{"<think>", "</think>"},
                  {.open = "Here is my thought process:", .close = "Here is my response:", .at_start = true}},
    .forms = {{.pieces = {{Piece::Kind::text, "<|tool_call|>"}, {Piece::Kind::space, ""}, {Piece::Kind::calls}}},
              {.pieces = {{Piece::Kind::text, "<tool_call>"}, {Piece::Kind::space, ""}, {Piece::Kind::calls}}}},
    .ignored = {"<response>", "</response>"},
};

}  // namespace ingot
