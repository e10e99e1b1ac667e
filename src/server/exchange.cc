#include "server/exchange.h"

#include "server/connection.h"
#include "server/http_error.h"

namespace ingot::server {

ConnectionExchange::ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t number, HttpRequest request,
                                       BufferLease lease)
    : connection_(std::move(connection)), number_(number), request_(std::move(request)), lease_(std::move(lease)) {}

ConnectionExchange::~ConnectionExchange() {
  if (!answered_)
    reply(error_reply({.message = "the server gave no answer to this request", .code = "internal_error"},
                      error_shape(request_), request_.id));
}

void ConnectionExchange::reply(HttpReply reply) {
  if (!answered_.exchange(true)) connection_->reply(number_, std::move(reply));
}

void ConnectionExchange::stream(HttpReply head, std::shared_ptr<BodySource> body) {
  if (!answered_.exchange(true)) connection_->stream(number_, std::move(head), std::move(body));
}

void ConnectionExchange::wake() { connection_->wake(); }

void ConnectionExchange::on_disconnect(std::function<void()> callback) {
  connection_->on_disconnect(number_, std::move(callback));
}

}  // namespace ingot::server
