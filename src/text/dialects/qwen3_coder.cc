#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::qwen3_coder{
    .name = "qwen3_coder",
    .models = "Qwen3-Coder, Qwen3.5, Nemotron 3, Seed-OSS",
    .template_marks = {{"<function=", "<parameter="}},
    .order = 40,
    .reasoning = {{"<think>", "</think>"}, {"<seed:think>", "</seed:think>"}},
    .calls_end_reasoning = true,
    // Models now and then leave the outer mark out.
    .forms = {{.pieces = {{Piece::Kind::maybe, "<tool_call>"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "<function="},
                          {Piece::Kind::name},
                          {Piece::Kind::text, ">"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::fields},
                          {Piece::Kind::text, "</function>"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::maybe, "</tool_call>"}}},
              {.pieces = {{Piece::Kind::text, "<seed:tool_call>"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "<function="},
                          {Piece::Kind::name},
                          {Piece::Kind::text, ">"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::fields},
                          {Piece::Kind::text, "</function>"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "</seed:tool_call>"}},
               .template_mark = "<seed:tool_call>"}},
    .fields = {.key_open = "<parameter=",
               .key_close = ">",
               .value_open = "",
               .value_close = "</parameter>",
               .lines = true,
               .value_ends = {"<parameter=", "</function>"}},
    .separator = "\n",
    .ignored = {"</tool_call>", "</seed:tool_call>"},
};

}  // namespace ingot
