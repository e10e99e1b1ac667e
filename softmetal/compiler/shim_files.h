// The headers of shim/, as text. Generated at build time by cmake/EmbedFiles.cmake.
#pragma once

namespace softmetal {

struct ShimFile {
  const char* path;
  const char* text;
};
extern const ShimFile kShimFiles[];  // ends with a null path

}  // namespace softmetal
