#pragma once

#include <string_view>
#include <vector>

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// A list that a client may fill: how many entries, and the name of the limit that says so.
struct ListLimit {
  int64_t most = 0;
  std::string_view name;
};

// A text, token ids, or a list of either, none of them empty lists. 400 when the parameter is missing.
std::vector<Prompt> take_prompts(Fields& fields, const std::string& name, const ListLimit& limit, int64_t vocab);

}  // namespace ingot::server::openai
