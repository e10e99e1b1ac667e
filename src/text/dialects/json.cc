#include "text/dialects/dialect.h"

namespace ingot {

// For models that know no format of their own and are told how to write calls (calls/tool_prompt.h).
const Dialect dialects::json{
    .name = "json",
    .models = "any other: JSON in the text",
    .order = 100,
    .forms = {{.pieces = {{Piece::Kind::call}}},
              {.pieces = {{Piece::Kind::calls}}},
              {.pieces = {{Piece::Kind::text, "```json"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::call},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "```"}},
               .bare = true},
              {.pieces = {{Piece::Kind::text, "```json"},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::calls},
                          {Piece::Kind::space, "\n"},
                          {Piece::Kind::text, "```"}},
               .bare = true}},
    .separator = "\n",
};

}  // namespace ingot
