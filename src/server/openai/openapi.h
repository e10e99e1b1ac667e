#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/openai/parameters.h"

namespace ingot::server::openai {

// An endpoint, as people and programs are told of it.
struct RouteInfo {
  std::string_view method, path;  // "/v1/models/{model}"
  std::string_view summary;
  EndpointSet endpoint = 0;  // whose parameters a body has; 0: there is no body
};

// GET /openapi.json: OpenAPI 3.1, made of the routes and the table of parameters.
std::string openapi_json(std::span<const RouteInfo> routes, const std::string& version, const RequestLimits& limits);

}  // namespace ingot::server::openai
