#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::llama3_json{
    .name = "llama3_json",
    .models = "Llama 3.1, 3.2 and 3.3, Llama 4 where its template asks for JSON",
    .template_marks = {{"<|python_tag|>"},
                       {"<|start_header_id|>", "\"parameters\":"},
                       {"<|header_start|>", "\"parameters\":"}},
    .order = 80,
    .forms = {{.pieces = {{Piece::Kind::maybe, "<|python_tag|>"}, {Piece::Kind::space, ""}, {Piece::Kind::call}}}},
    .separator = "; ",
    .ignored = {"<|eom_id|>", "<|eot_id|>"},
    .arguments_key = "parameters",
};

}  // namespace ingot
