#include "server/responses/endpoints.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/openai/answer.h"
#include "server/openai/errors.h"

namespace ingot::server::responses {
namespace {

using Json = nlohmann::ordered_json;
using openai::fail;

std::shared_ptr<const StoredResponse> find(const ResponseStore& store, const HttpRequest& request,
                                           const std::string& id) {
  auto found = store.find(request.tenant, id);
  if (!found)
    throw openai::ApiError(404, fmt::format("no response with the id `{}` is kept", printable(id, 200)), "response_id",
                           "not_found");
  return found;
}

// The value of a name in "a=1&b=2"; empty when absent.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.substr(0, pair.find('=')) == name) return pair.substr(std::min(pair.size(), name.size() + 1));
  }
  return {};
}

}  // namespace

HttpReply show_response(const ResponseStore& store, const HttpRequest& request, const std::string& id) {
  if (query_value(request.query, "stream") == "true")
    fail("stream", "unsupported_parameter", "is not supported here: a response is kept when it is whole");
  return {.body = find(store, request, id)->response};
}

HttpReply delete_response(ResponseStore& store, const HttpRequest& request, const std::string& id) {
  find(store, request, id);
  store.erase(request.tenant, id);
  return {.body = openai::dump({{"id", id}, {"object", "response"}, {"deleted", true}})};
}

HttpReply list_input_items(const ResponseStore& store, const HttpRequest& request, const std::string& id) {
  constexpr size_t kUsual = 20, kMost = 100;
  const auto stored = find(store, request, id);
  size_t limit = kUsual;
  if (const std::string_view text = query_value(request.query, "limit"); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (error != std::errc() || end != text.data() + text.size() || limit < 1 || limit > kMost)
      fail("limit", "invalid_value", "must be a number from 1 to {}, got {}", kMost, printable(text, 60));
  }
  const std::string_view order = query_value(request.query, "order"), after = query_value(request.query, "after");
  if (!order.empty() && order != "asc" && order != "desc")
    fail("order", "invalid_value", "must be asc or desc, got {}", printable(order, 60));

  Json items = Json::parse(stored->items);
  if (order != "asc") std::reverse(items.begin(), items.end());
  auto first = items.begin();
  if (!after.empty()) {
    first = std::find_if(items.begin(), items.end(), [&](const Json& item) { return item["id"] == after; });
    if (first == items.end()) fail("after", "invalid_value", "is not the id of an item here: {}", printable(after, 60));
    ++first;
  }
  Json data = Json::array();
  for (; first != items.end() && data.size() < limit; ++first) data.push_back(std::move(*first));
  const auto id_of = [&](bool last) { return data.empty() ? Json("") : (last ? data.back() : data.front())["id"]; };
  const Json first_id = id_of(false), last_id = id_of(true);
  return {.body = openai::dump({{"object", "list"},
                                {"first_id", first_id},
                                {"last_id", last_id},
                                {"has_more", first != items.end()},
                                {"data", std::move(data)}})};
}

HttpReply cancel_response(const ResponseStore& store, const HttpRequest& request, const std::string& id) {
  find(store, request, id);
  fail("response_id", "invalid_value",
       "is that of a response which was not made in the background: it cannot be cancelled");
}

}  // namespace ingot::server::responses
