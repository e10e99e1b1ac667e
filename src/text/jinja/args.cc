#include "text/jinja/args.h"

#include <algorithm>

namespace ingot::jinja {

std::optional<Value> Args::take_keyword(std::string_view name) {
  const auto it = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
  if (it == keywords.end()) return std::nullopt;
  Value taken = std::move(it->second);
  keywords.erase(it);
  return taken;
}

Params::Params(std::string_view function, const Args& args, std::initializer_list<std::string_view> names,
               size_t required)
    : function_(function), values_(names.size()) {
  if (args.positional.size() > names.size())
    raise("{}() takes at most {} arguments, {} given", function, names.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) raise("{}() got an unexpected keyword argument '{}'", function, name);
    auto& slot = values_[static_cast<size_t>(it - names.begin())];
    if (slot) raise("{}() got multiple values for argument '{}'", function, name);
    slot = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) raise("{}() missing required argument: '{}'", function, *(names.begin() + i));
}

int64_t Params::integer(size_t i, int64_t absent) const {
  if (!values_[i]) return absent;
  require_defined(*values_[i]);
  if (!values_[i]->is_integral())
    raise("{}(): '{}' object cannot be interpreted as an integer", function_, type_name(*values_[i]));
  return values_[i]->as_int();
}

const std::string& Params::string(size_t i) const {
  if (!values_[i]->is_string()) raise("{}(): argument must be str, not {}", function_, type_name(*values_[i]));
  return values_[i]->text();
}

}  // namespace ingot::jinja
