#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::pythonic{
    .name = "pythonic",
    .models = "Llama 3.2 and 4, LFM2, ToolACE, where the template asks for Python",
    .template_marks = {{"<|python_start|>"},
                       {"<|tool_list_start|>"},
                       {"List of tools: ["},
                       {"<|tool_call_start|>"},
                       {"func_name1("},
                       {"func_name("}},
    .order = 70,
    .forms = {{.pieces = {{Piece::Kind::maybe, "<|python_start|>"},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::python},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::maybe, "<|python_end|>"}},
               .at_start = true},
              {.pieces = {{Piece::Kind::text, "<|tool_call_start|>"},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::python},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::text, "<|tool_call_end|>"}},
               .template_mark = "<|im_start|>"}},
};

}  // namespace ingot
