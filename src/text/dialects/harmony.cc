#include "text/calls/harmony_parser.h"
#include "text/dialects/dialect.h"

namespace ingot {

const Dialect dialects::harmony{
    .name = "harmony",
    .models = "gpt-oss",
    .template_marks = {{"<|channel|>", "<|message|>"}},
    .order = 10,
    .reasoning = {{"<|channel|>analysis<|message|>", "<|end|><|start|>assistant"}},
    .make_parser = make_harmony_parser,
    .call_open = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
    .call_close = "",  // <|call|> ends the answer
    .content_open = "<|channel|>final<|message|>",
};

}  // namespace ingot
