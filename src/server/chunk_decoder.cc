#include "server/chunk_decoder.h"

#include <algorithm>

#include "server/ascii.h"

namespace ingot::server {
namespace {

constexpr size_t kMostExtra = 4096;  // bytes of extensions and trailers in one body
constexpr int kMostDigits = 16;      // of a chunk's size

bool is_text(char c) { return is_header_value({&c, 1}); }

}  // namespace

ChunkDecoder::Result ChunkDecoder::feed(std::string_view bytes, uint64_t most, std::string& out, size_t& used) {
  used = 0;
  while (used < bytes.size()) {
    if (state_ == State::data) {
      const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - used));
      out.append(bytes.substr(used, take));
      used += take;
      left_ -= take;
      if (left_ == 0) state_ = State::data_cr;
      continue;
    }
    const char c = bytes[used++];
    switch (state_) {
      case State::size_first:
      case State::size: {
        const int digit = hex_digit(c);
        if (digit >= 0) {
          if (++digits_ > kMostDigits) return Result::malformed;
          left_ = left_ * 16 + static_cast<uint64_t>(digit);
          // Within the limit after every digit, so the number cannot overflow.
          if (left_ > most || out.size() + left_ > most) return Result::too_large;
          state_ = State::size;
        } else if (state_ == State::size_first) {
          return Result::malformed;
        } else if (c == ';') {
          state_ = State::extension;
        } else if (c == '\r') {
          state_ = State::size_lf;
        } else {
          return Result::malformed;
        }
        break;
      }
      case State::extension:
        if (++extra_ > kMostExtra) return Result::too_large;
        if (c == '\r')
          state_ = State::size_lf;
        else if (!is_text(c))
          return Result::malformed;
        break;
      case State::size_lf:
        if (c != '\n') return Result::malformed;
        state_ = left_ > 0 ? State::data : State::trailer;
        break;
      case State::data: break;
      case State::data_cr:
        if (c != '\r') return Result::malformed;
        state_ = State::data_lf;
        break;
      case State::data_lf:
        if (c != '\n') return Result::malformed;
        state_ = State::size_first;
        digits_ = 0;
        break;
      case State::trailer:
        if (++extra_ > kMostExtra) return Result::too_large;
        if (c == '\r') {
          if (!line_empty_ && !name_ended_) return Result::malformed;
          state_ = State::trailer_lf;
        } else if (!name_ended_ && c == ':' && !line_empty_) {
          name_ended_ = true;
        } else if (name_ended_ ? !is_text(c) : !is_token({&c, 1})) {
          return Result::malformed;
        }
        if (c != '\r') line_empty_ = false;
        break;
      case State::trailer_lf:
        if (c != '\n') return Result::malformed;
        if (line_empty_) return Result::end;
        line_empty_ = true;
        name_ended_ = false;
        state_ = State::trailer;
        break;
    }
  }
  return Result::more;
}

}  // namespace ingot::server
