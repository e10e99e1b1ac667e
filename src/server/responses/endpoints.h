#pragma once

#include <string>

#include "server/http.h"
#include "server/responses/store.h"

// What can be asked about a response that was given: GET and DELETE /v1/responses/{id}, GET .../input_items, POST
// .../cancel. Who did not make it gets the same 404 as for one that never was. All throw ApiError.
namespace ingot::server::responses {

HttpReply show_response(const ResponseStore& store, const HttpRequest& request, const std::string& id);
HttpReply delete_response(ResponseStore& store, const HttpRequest& request, const std::string& id);
HttpReply list_input_items(const ResponseStore& store, const HttpRequest& request, const std::string& id);
HttpReply cancel_response(const ResponseStore& store, const HttpRequest& request, const std::string& id);

}  // namespace ingot::server::responses
