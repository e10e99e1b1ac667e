#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cancel.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

struct RenderOptions {
  Limits limits;
  const CancelFlag* cancelled = nullptr;  // set from outside: render() throws Error (cancelled) soon
  std::optional<std::tm> now;             // what strftime_now() says; the local time when absent
};

// A parsed template, as jinja2's sandbox would run it with trim_blocks and lstrip_blocks and Hugging Face's additions.
// docs/models.md lists what it knows. Can be rendered by several threads at once.
class Template {
 public:
  // Throws ingot::Error (bad_file) when the source is not valid or uses something that is not supported.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // Throws ingot::Error: bad_call when the template calls raise_exception() or cannot work with the variables, bad_file
  // when it runs over a limit, declined when it uses something that is not supported. Names of variables must live as
  // long as the call.
  std::string render(std::vector<std::pair<std::string_view, Value>> variables,
                     const RenderOptions& options = {}) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace ingot::jinja
