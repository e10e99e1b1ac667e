#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::mistral{
    .name = "mistral",
    .models = "Mistral, Mixtral, Ministral, Magistral, Devstral",
    .template_marks = {{"[TOOL_CALLS]"}},
    .order = 10,
    .reasoning = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}},
    .forms = {{.pieces = {{Piece::Kind::text, "[TOOL_CALLS]"},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::name},
                          {Piece::Kind::id, "[CALL_ID]"},
                          {Piece::Kind::maybe, "[ARGS]"},
                          {Piece::Kind::space, ""},
                          {Piece::Kind::arguments}},
               .template_mark = "[ARGS]"},
              // Up to the third version of its tokenizer.
              {.pieces = {{Piece::Kind::text, "[TOOL_CALLS]"}, {Piece::Kind::space, " "}, {Piece::Kind::calls}}}},
    .short_ids = true,
};

}  // namespace ingot
