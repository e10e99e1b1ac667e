#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/digest.h"
#include "prefix/block_hash.h"

namespace ingot {

// A folder of block files, which several processes may use at the same time:
//
//   ingot-prefix    what this folder is, and the version of its format
//   secret          32 bytes, the key of all hashes: who cannot read it cannot tell what the files say
//   lock            held by whoever deletes
//   blocks/ab/...   a file a block, named by its hash and its place in its sequence
//   note-*          small things worth remembering: hashes of weights
//
// A file appears under its name when it is whole (it is written beside and renamed), and is checked when it is read: a
// crash at any moment costs what was being written. Of one thread.
class BlockFolder {
 public:
  // Makes the folder where there is none. Throws Error(io) where there is something else, or a newer format: that is
  // left alone.
  BlockFolder(const std::string& path, uint64_t most_bytes);

  const Digest& secret() const { return secret_; }
  const std::filesystem::path& path() const { return path_; }
  // Called between parts of what takes long.
  void set_rest(Rest rest) { rest_ = std::move(rest); }

  enum class Found : uint8_t { yes, no, damaged };
  // A damaged file is deleted.
  Found read(const BlockContent& content, std::span<std::byte> payload);
  // The block was used, elsewhere; false: there is no file of it. Of the content its tokens need not be there.
  bool touch(const BlockContent& content);
  // Throws Error(io): no room, no permission. A file that is there already is left as it is, and was used now.
  void write(const BlockContent& content, std::span<const std::byte> payload);

  // Deletes the least recently used until the folder is within its bytes; also what crashes left behind.
  void trim();
  uint64_t bytes() const { return bytes_; }  // about: other processes write too

  // A small text kept under a name of letters and digits; empty: none.
  std::string note(const std::string& name) const;
  void set_note(const std::string& name, std::string_view text) const;

 private:
  std::filesystem::path file_of(const BlockContent& content) const;

  std::filesystem::path path_;
  uint64_t most_bytes_;
  Digest secret_;
  Rest rest_;
  uint64_t bytes_ = 0;
  uint64_t untrimmed_bytes_ = 0;  // written since trim()
};

}  // namespace ingot
