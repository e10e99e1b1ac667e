#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::deepseek_v3{
    .name = "deepseek_v3",
    .models = "DeepSeek V3 and R1, and what was distilled from them",
    .template_marks = {{"<｜tool▁call▁begin｜>", "```json"}},
    .order = 20,
    .calls_end_reasoning = true,
    .forms = {{.pieces = {{Piece::Kind::text, "<｜tool▁call▁begin｜>"},
                          {Piece::Kind::text, "function<｜tool▁sep｜>"},
                          {Piece::Kind::name},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "```json"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::arguments},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::maybe, "```"},
                          {Piece::Kind::text, "<｜tool▁call▁end｜>"}}}},
    .section_open = "<｜tool▁calls▁begin｜>",
    .section_close = "<｜tool▁calls▁end｜>",
    .separator = "\n",
};

}  // namespace ingot
