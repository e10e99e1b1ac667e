#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"
#include "core/threads.h"

// Packed matrices in a file, as they lie in memory (pack.cc), all numbers little-endian:
//
//   head     a page: magic, identity, sizes, SHA-256 of the table, SHA-256 of all that. Written last.
//   table    of each matrix rows, cols, bytes and name; then the checksum of each MiB of the body
//   body     the matrices one after the other, from a multiple of 2 MiB on
//
// The panels are the same for every instruction set.
namespace ingot::cpu {

// Counts up with every change of what pack.cc writes or of the file: those of before are then not found.
inline constexpr int kPackedFormat = 1;

struct PackedEntry {
  std::string name;
  int64_t rows = 0, cols = 0;
  size_t bytes = 0;  // a multiple of 64

  bool operator==(const PackedEntry&) const = default;
};

struct PackedPart {
  PackedEntry entry;
  std::shared_ptr<std::byte> data;
};

// A file that is read from front to back. What it gives was checked against its checksums.
class PackedFile {
 public:
  enum class Use : uint8_t { read, map };  // into memory of huge pages, by all cores; or the file's own pages

  // Null: there is no such file. Throws Error (bad_file, io) where it is not one that was written whole for `identity`.
  static std::unique_ptr<PackedFile> open(const std::filesystem::path& path, const Digest& identity, Use use);
  ~PackedFile();

  // The data of the next matrix; it stays as long as somebody has it. Throws Error (bad_file, io) where that is another
  // one, or damaged; what was given before is good.
  std::shared_ptr<std::byte> next(const PackedEntry& expected, ThreadPool& pool);

 private:
  PackedFile() = default;
  void parse_table(std::span<const std::byte> table, uint64_t matrices);
  void fill(size_t end, ThreadPool& pool);
  bool fill_piece(size_t piece) const;

  Use use_ = Use::read;
  std::string name_;
  int fd_ = -1;  // Use::read
  std::vector<PackedEntry> entries_;
  std::vector<uint64_t> sums_;  // of the body's pieces
  size_t body_at_ = 0, body_bytes_ = 0;
  std::shared_ptr<std::byte> body_;
  size_t filled_ = 0;  // of the body: checked
  size_t next_entry_ = 0;
  size_t next_at_ = 0;  // in the body
};

// How large the file will be.
size_t packed_file_bytes(std::span<const PackedPart> parts);

// Writes it into an empty file and waits until it is on the disk. False: `stop` was set meanwhile. Throws Error (io)
// that calls the file `name`.
bool write_packed_file(int fd, const std::string& name, const Digest& identity, std::span<const PackedPart> parts,
                       const std::atomic<bool>& stop);

}  // namespace ingot::cpu
