// Any text as chat template, rendered over a fixed conversation with small limits.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/jinja/template.h"

#include <nlohmann/json.hpp>

namespace {

constexpr const char* kConversation = R"({
  "messages": [{"role": "system", "content": "Be brief."},
               {"role": "user", "content": "Grüße, 世界 🎉"},
               {"role": "assistant", "content": null,
                "tool_calls": [{"id": "abcdef123", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}]},
               {"role": "tool", "content": [{"type": "text", "text": "3.5"}]}],
  "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 7, "xs": [3, 1, 2]
})";

using Variables = std::vector<std::pair<std::string_view, ingot::jinja::Value>>;

Variables read_variables() {
  static const nlohmann::ordered_json json = nlohmann::ordered_json::parse(kConversation);
  Variables variables;
  for (const auto& item : json.get_ref<const nlohmann::ordered_json::object_t&>())
    variables.emplace_back(item.first, ingot::jinja::Value::from_json(item.second));
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Variables variables = read_variables();
  ingot::jinja::RenderOptions options;
  options.limits.max_steps = 50'000;
  options.limits.max_output = 1 << 20;
  options.limits.max_memory = 64 << 20;
  options.now = std::tm{};
  try {
    const ingot::jinja::Template chat(std::string_view(reinterpret_cast<const char*>(data), size));
    const std::string text = chat.render(variables, options);
    if (text.size() > options.limits.max_output) __builtin_trap();
  } catch (const ingot::Error& e) {
    // Refused; running into a bug of ours is not a reason to refuse.
    if (e.kind() == ingot::ErrorKind::internal) __builtin_trap();
  }
  return 0;
}
