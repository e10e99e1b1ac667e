#include "collective/links.h"
#include "core/error.h"

namespace ingot {

std::shared_ptr<Group> link_by_jaccl(std::shared_ptr<Group>) {
  throw_error(
      ErrorKind::declined,
      "INGOT_LINK=jaccl: this program was built without JACCL, which is for macOS 26.2 and newer; unset it to use MPI");
}

}  // namespace ingot
