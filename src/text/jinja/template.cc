#include "text/jinja/template.h"

#include "core/error.h"
#include "text/jinja/parser.h"

namespace ingot::jinja {

struct Template::Parsed {
  explicit Parsed(std::string_view text) : source(normalize_source(text)), body(Parser(source).parse()) {}

  std::string source;
  Block body;
};

Template::Template(std::string_view source) : parsed_(std::make_unique<const Parsed>(source)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(std::vector<std::pair<std::string_view, Value>> variables,
                             const RenderOptions& options) const {
  Run run(options.limits, options.now, options.cancelled);
  const auto scope = std::make_shared<Scope>(nullptr, std::move(variables));
  try {
    execute(parsed_->body, run, scope);
  } catch (const Raise& e) {
    scope->clear();  // macros point back at their scope
    throw_error(e.kind, "chat template, {}: {}", describe_position(parsed_->source, run.pos), e.message);
  } catch (...) {
    scope->clear();
    throw;
  }
  scope->clear();
  return run.take_output();
}

}  // namespace ingot::jinja
