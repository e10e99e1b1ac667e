#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/dialects/dialect.h"

namespace ingot {

// How a model that is held to its tools has to write calls: open (tag arguments end) (separator ...)* close. What it
// writes so, the parser of the same dialect reads.
struct CallGrammar {
  enum class Arguments { json, fields, python };
  struct Tag {
    std::string name;  // of the function
    std::string begin, end;
    const nlohmann::ordered_json* schema = nullptr;  // of the arguments; null: any object
    bool strict = false;
  };

  Arguments arguments = Arguments::json;
  Fields fields{};                    // how they are written, for Arguments::fields
  std::vector<std::string> triggers;  // in free text: from one of these on it is a call
  std::string open;                   // before the first
  std::string separator;
  std::string close;      // behind the last
  std::vector<Tag> tags;  // one a tool
};

// `tools` as ToolSchemas takes it; it must outlive what is returned. The template tells which form of the dialect its
// model writes.
CallGrammar make_call_grammar(const Dialect& dialect, std::string_view template_source,
                              const nlohmann::ordered_json& tools);

}  // namespace ingot
