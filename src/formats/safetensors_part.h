#pragma once

#include <vector>

#include "formats/mapped_file.h"
#include "formats/safetensors.h"

namespace ingot {

// One parsed safetensors file; the views point into `file`.
struct SafetensorsPart {
  MappedFile file;
  std::vector<TensorView> tensors;  // in the order of their bytes
  std::vector<SafetensorsCheckpoint::Unsupported> unsupported;
};

// Checks the header against the file: every byte of data belongs to exactly one tensor. Throws bad_file naming the
// tensor.
SafetensorsPart parse_safetensors_part(MappedFile file);

}  // namespace ingot
