#include "server/openai/prompt_fields.h"

#include <nlohmann/json.hpp>

#include "server/openai/errors.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

Prompt token_prompt(const Json& list, const std::string& path, int64_t vocab) {
  if (list.empty()) fail(path, "empty_array", "may not be empty");
  return token_list(list, path, vocab);
}

}  // namespace

std::vector<Prompt> take_prompts(Fields& fields, const std::string& name, const ListLimit& limit, int64_t vocab) {
  const Json* prompt = fields.take(name);
  if (prompt == nullptr) fail(name, "missing_required_parameter", "is missing");
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array())
    fail(name, "invalid_type", "must be a string, token ids, or a list of either, got {}", kind_of(*prompt));
  if (prompt->empty()) fail(name, "empty_array", "may not be empty");
  if ((*prompt)[0].is_number()) return {token_prompt(*prompt, name, vocab)};
  if (prompt->size() > static_cast<size_t>(limit.most))
    fail(name, "array_above_max_length", "may hold at most {} {} (--limit {}), got {}", limit.most, limit.name,
         limit.name, prompt->size());
  std::vector<Prompt> prompts;
  for (const Json& element : *prompt) {
    const std::string path = fmt::format("{}[{}]", name, prompts.size());
    if (element.is_string()) {
      prompts.emplace_back(element.get<std::string>());
    } else if (element.is_array()) {
      prompts.push_back(token_prompt(element, path, vocab));
    } else {
      fail(path, "invalid_type", "must be a string or a list of token ids, got {}", kind_of(element));
    }
  }
  return prompts;
}

}  // namespace ingot::server::openai
