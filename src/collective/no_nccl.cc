#include "collective/links.h"
#include "core/error.h"

namespace ingot {

std::shared_ptr<Group> link_by_nccl(std::shared_ptr<Group>) {
  throw_error(ErrorKind::declined, "INGOT_LINK=nccl: this program was built without nccl.h; unset it to use MPI");
}

}  // namespace ingot
