#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/mapped_file.h"

namespace ingot {

// The types of metadata values, with the file's numbers.
namespace gguf_value {
enum Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
}

// One parsed file of a GGUF model; a split model has several. The views point into `file`.
struct GgufPart {
  MappedFile file;
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufRawValue> raw_values;
  std::vector<TensorView> tensors;  // in the order of the file's table
};

// Checks and parses everything but the tensors' contents. Throws bad_file naming the key or tensor, or declined for a
// tensor type that we do not read.
GgufPart parse_gguf_part(MappedFile file);

}  // namespace ingot
