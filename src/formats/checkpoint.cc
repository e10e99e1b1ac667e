#include "formats/checkpoint.h"

#include "core/error.h"
#include "core/printable.h"

namespace ingot {

const TensorView& Checkpoint::get(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr)
    throw_error(ErrorKind::bad_file, "{}: tensor {} is missing from the file", describe(), printable(name));
  return *tensor;
}

std::shared_ptr<PageBuffer> Checkpoint::compute(const TensorView& tensor) const {
  throw_error(ErrorKind::bad_call, "{}: tensor {} is in the file and cannot be computed", describe(),
              printable(tensor.name));
}

}  // namespace ingot
