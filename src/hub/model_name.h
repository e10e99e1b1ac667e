#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ingot::hub {

// A model of the hub as people write it: OWNER/NAME[@REVISION][:VARIANT].
struct ModelName {
  std::string repo;               // "owner/name"
  std::string revision = "main";  // a branch, a tag, refs/pr/N or a commit
  std::string variant;            // which GGUF: "Q4_K_M" or a file name; empty: the safetensors, or the only GGUF

  std::string text() const;  // as it is written, without the default revision
};

// Nothing when the text cannot be such a name (a path like ./x, a file name, characters the hub does not allow).
std::optional<ModelName> parse_model_name(std::string_view text);

// Whether a name from outside may become a path below a folder: no empty part, no "." or "..", no control characters.
bool is_safe_relative_path(std::string_view path);

// 40 lower-case hexadecimal digits.
bool is_commit(std::string_view text);

}  // namespace ingot::hub
