#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::phi4{
    .name = "phi4",
    .models = "Phi-4-mini",
    .template_marks = {{"functools"}, {"<|tool|>", "<|/tool|>"}},
    .order = 50,
    .forms = {{.pieces = {{Piece::Kind::text, "<|tool_call|>"},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::calls},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::maybe, "<|/tool_call|>"}},
               .template_mark = "<|tool_call|>"},
              {.pieces = {{Piece::Kind::text, "functools"}, {Piece::Kind::calls}}}},
};

}  // namespace ingot
