#pragma once

#include <string>
#include <vector>

#include "text/jinja/ast.h"

namespace ingot::jinja {

// jinja2 decides when it compiles which names are local to a scope. A name that a scope only ever assigns, and that no
// scope around it mentions, is undefined there until it is assigned, even when the template was given a variable of
// that name. This finds these names and stores them in the statements (Stmt::hidden, else_hidden); those of the
// template itself are returned.
std::vector<std::string> find_hidden_names(Block& body);

}  // namespace ingot::jinja
