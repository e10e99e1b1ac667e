// Any bytes as the file of a block: only what was written of this block is taken.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prefix/block_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  static const std::array<int32_t, 4> tokens = {1, 2, 3, 4};
  static const BlockContent content{BlockHasher(Digest{}, "fuzz").chain({}, tokens), 0, tokens};
  // The input is a patch of a good file: where, then bytes to put there; the first byte says how much of it is left.
  std::vector<std::byte> payload(48, std::byte{7});
  std::vector<std::byte> file = block_file_head(content, payload.size());
  const Digest check = block_file_check(file, payload);
  file.insert(file.end(), payload.begin(), payload.end());
  file.insert(file.end(), check.begin(), check.end());
  const std::vector<std::byte> whole = file;
  if (size > 2) {
    file.resize(std::min<size_t>(data[0], 2 * file.size()));
    for (size_t i = 2; i < size; ++i)
      if (const size_t at = data[1] + i - 2; at < file.size()) file[at] = static_cast<std::byte>(data[i]);
  }
  std::span<const std::byte> rest = file;
  const auto read = [&](std::span<std::byte> bytes) {
    if (bytes.size() > rest.size()) return false;
    std::ranges::copy(rest.first(bytes.size()), bytes.begin());
    rest = rest.subspan(bytes.size());
    return true;
  };
  std::vector<std::byte> out(payload.size());
  const bool taken = read_block_file(read, content, out);
  if (taken != (file == whole) || (taken && out != payload)) __builtin_trap();
  return 0;
}
