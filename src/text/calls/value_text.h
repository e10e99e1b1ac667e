#pragma once

#include <string>
#include <string_view>

#include "text/calls/input.h"
#include "text/calls/tool_schemas.h"

namespace ingot {

// A value that a model wrote without quotes, as JSON of one of the kinds: "3" is a number or a string. What cannot be
// read as such becomes a string.
std::string value_as_json(std::string_view text, const ValueKinds& kinds);

// The same as the text comes: of what can only be a string, the beginning is known before the end.
class ValueText {
 public:
  // lines: a line break at the beginning and one at the end do not belong to the text.
  ValueText(const ValueKinds& kinds, bool lines) : kinds_(kinds), lines_(lines) {}
  void add(std::string_view text, std::string& json);
  void finish(std::string& json);
  void cut(std::string& json) const;  // the text ended within the value: as far as it goes

 private:
  void add_string(std::string_view text, std::string& json);

  ValueKinds kinds_;
  bool lines_;
  bool first_ = true;
  bool quoted_ = false;  // it is a string; its quote is written
  std::string held_;     // not written yet
};

}  // namespace ingot
