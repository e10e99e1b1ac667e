#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::glm45{
    .name = "glm45",
    .models = "GLM-4.5, 4.6 and 4.7",
    .template_marks = {{"<arg_key>", "<arg_value>"}},
    .order = 30,
    .calls_end_reasoning = true,
    .forms = {{.pieces = {{Piece::Kind::text, "<tool_call>"},
                          {Piece::Kind::name},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::fields},
                          {Piece::Kind::text, "</tool_call>"}}}},
    .fields = {.key_open = "<arg_key>",
               .key_close = "</arg_key>",
               .value_open = "<arg_value>",
               .value_close = "</arg_value>",
               .between = "\n"},
    .separator = "\n",
    .ignored = {"</tool_call>"},
};

}  // namespace ingot
