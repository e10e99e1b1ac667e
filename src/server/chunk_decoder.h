#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::server {

// Takes a chunked body apart (RFC 9112, section 7.1). Chunk extensions and trailers are checked, bounded and dropped.
class ChunkDecoder {
 public:
  enum class Result { more, end, malformed, too_large };

  // Appends decoded bytes to `out`, which never grows over `most` bytes; `used` is how many input bytes were taken.
  Result feed(std::string_view bytes, uint64_t most, std::string& out, size_t& used);

 private:
  enum class State { size_first, size, extension, size_lf, data, data_cr, data_lf, trailer, trailer_lf };

  State state_ = State::size_first;
  uint64_t left_ = 0;        // of the chunk being read
  int digits_ = 0;           // of its size, so far
  size_t extra_ = 0;         // bytes of extensions and trailers so far
  bool line_empty_ = true;   // of the trailer line being read
  bool name_ended_ = false;  // its colon was seen
};

}  // namespace ingot::server
