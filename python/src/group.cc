#include "collective/tcp_group.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "module.h"

namespace ingot::python {
namespace {

using RankTuple = std::tuple<std::string, std::string, std::string>;

std::shared_ptr<Group> join(const TcpListener& listener, int rank, const std::vector<RankTuple>& ranks,
                            const nb::bytes& secret, int patience_s) {
  TcpKey key;
  if (secret.size() != key.size()) throw_error(ErrorKind::bad_call, "key: must be of {} bytes", key.size());
  std::memcpy(key.data(), secret.c_str(), key.size());
  std::vector<TcpRank> all;
  for (const auto& [address, machine, memory] : ranks) all.push_back({address, machine, memory});
  const nb::gil_scoped_release release;
  return listener.join(rank, all, key, std::chrono::seconds(patience_s));
}

}  // namespace

void bind_group(nb::module_& m) {
  nb::class_<Group>(m, "Group", "Processes that share a model, by the sockets between them.")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("size", &Group::size)
      .def_prop_ro("neighbours", &Group::neighbours, "ranks on this machine, this one included");
  nb::class_<TcpListener>(
      m, "GroupListener",
      "One of several processes that are to share a model. Each listens, all learn the addresses of all "
      "and a key, then each joins.")
      .def(nb::init<const std::string&>(), nb::arg("host"), "Listens on an IP address of this machine.")
      .def_prop_ro("address", &TcpListener::address)
      .def("join", &join, nb::arg("rank"), nb::arg("ranks"), nb::arg("key"), nb::arg("patience_s") = 60,
           "Connects the ranks; `ranks` has (address, name of the machine, what is the same on ranks that share a "
           "memory) of "
           "each, `key` 32 bytes. A process that loses one of the others afterwards says which and ends.");
}

}  // namespace ingot::python
