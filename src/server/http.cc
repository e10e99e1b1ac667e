#include "server/http.h"

namespace ingot::server {

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

}  // namespace ingot::server
