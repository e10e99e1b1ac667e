#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::deepseek_v31{
    .name = "deepseek_v31",
    .models = "DeepSeek V3.1",
    .template_marks = {{"<｜tool▁call▁begin｜>"}},
    .order = 21,  // behind deepseek_v3, whose templates have this mark too
    .calls_end_reasoning = true,
    .forms = {{.pieces = {{Piece::Kind::text, "<｜tool▁call▁begin｜>"},
                          {Piece::Kind::name},
                          {Piece::Kind::text, "<｜tool▁sep｜>"},
                          {Piece::Kind::arguments},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::text, "<｜tool▁call▁end｜>"}}}},
    .section_open = "<｜tool▁calls▁begin｜>",
    .section_close = "<｜tool▁calls▁end｜>",
};

}  // namespace ingot
