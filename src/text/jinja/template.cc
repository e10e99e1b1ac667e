#include "text/jinja/template.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/jinja/scopes.h"

namespace ingot::jinja {

Template::Template(std::string_view source)
    : source_(normalize_source(source)), body_(Parser(source_).parse()), hidden_(find_hidden_names(body_)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(std::vector<std::pair<std::string_view, Value>> variables,
                             const RenderOptions& options) const {
  return Interpreter(source_, options.limits, options.now).render(body_, hidden_, std::move(variables));
}

}  // namespace ingot::jinja
