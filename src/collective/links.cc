#include "collective/links.h"

#include "core/error.h"
#include "core/settings.h"

namespace ingot {

std::shared_ptr<Group> with_link(const std::function<std::shared_ptr<Group>(const std::string& link)>& connect) {
  const std::string link = environment("INGOT_LINK").value_or("");
  if (link.empty() || link == "mpi" || link == "tcp") return connect(link);
  if (link == "nccl") return link_by_nccl(connect(""));
  if (link == "jaccl") return link_by_jaccl(connect(""));
  throw_error(ErrorKind::bad_call, "INGOT_LINK={}: must be mpi, tcp, nccl or jaccl", link);
}

}  // namespace ingot
