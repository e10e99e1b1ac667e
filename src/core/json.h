#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/cancel.h"
#include "core/error.h"

namespace ingot {

// Of JSON that is refused: "config.json: is not valid JSON: ...".
class JsonError : public Error {
 public:
  JsonError(const std::string& name, std::string reason)
      : Error(ErrorKind::bad_file, name + ": " + reason), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }  // without the name

 private:
  std::string reason_;
};

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  int max_depth = 64;
  size_t max_values = size_t{1} << 30;
  size_t max_keys = size_t{1} << 30;      // of all objects together; a key costs several times what a value does
  const CancelFlag* cancelled = nullptr;  // set from outside: parsing throws Error (cancelled) soon
  bool unique_keys = true;  // an object with the same key twice is refused; costs a set of keys for each open object
};

// The one door for JSON of unknown origin: strict JSON with valid UTF-8, within the limits; a hostile text is refused
// where it turns hostile. Time and memory are linear in the text. Throws JsonError; `name` is a path, or what the text
// is.
nlohmann::json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits = {});
// With the order of keys kept.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name,
                                          const JsonLimits& limits = {});

}  // namespace ingot
