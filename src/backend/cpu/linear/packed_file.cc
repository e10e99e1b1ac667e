#include "backend/cpu/linear/packed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backend/cpu/memory.h"
#include "core/checksum.h"
#include "core/error.h"
#include "core/throw_errno.h"
#include "formats/mapped_file.h"

namespace ingot::cpu {
namespace {

static_assert(std::endian::native == std::endian::little, "packed files are written as they lie in memory");

constexpr size_t kHeadBytes = 4096;
constexpr size_t kUnit = Checksum::kUnit;           // matrices are whole lines of it
constexpr size_t kPiece = size_t{1} << 20;          // has a checksum; stays in the second cache between copy and sum
constexpr size_t kWindow = size_t{256} << 20;       // filled at a time, so that there is progress to show
constexpr size_t kBodyAlignment = size_t{2} << 20;  // of huge pages, should the system map files by them
constexpr size_t kFlush = size_t{32} << 20;         // written to the disk while the next is copied

size_t pieces_in(size_t bytes) { return bytes / kPiece + (bytes % kPiece != 0 ? 1 : 0); }

struct Head {
  char magic[8] = {'i', 'n', 'g', 'o', 't', 'p', 'k', '1'};
  Digest identity{};
  uint64_t matrices = 0, table_bytes = 0, body_at = 0, body_bytes = 0;
  Digest table{};  // SHA-256 of it
  Digest head{};   // of all before

  std::span<const std::byte> before_digest() const {
    return std::as_bytes(std::span(this, 1)).first(offsetof(Head, head));
  }
};
static_assert(sizeof(Head) == 136, "no padding");

[[noreturn]] void refuse(const std::string& name, const char* why) {
  throw_error(ErrorKind::bad_file, "{}: {}", name, why);
}

// Numbers and texts of a table, which ends where it says.
class TableReader {
 public:
  TableReader(std::span<const std::byte> left, const std::string& name) : left_(left), name_(name) {}

  std::span<const std::byte> take(size_t bytes) {
    if (bytes > left_.size()) refuse(name_, "its table is cut short");
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  uint64_t number() {
    uint64_t value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto bytes = take(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> left_;
  const std::string& name_;
};

void put_number(std::vector<std::byte>& table, uint64_t value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  table.insert(table.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> make_table(std::span<const PackedPart> parts, std::span<const uint64_t> sums) {
  std::vector<std::byte> table;
  for (const auto& [entry, data] : parts) {
    put_number(table, static_cast<uint64_t>(entry.rows));
    put_number(table, static_cast<uint64_t>(entry.cols));
    put_number(table, entry.bytes);
    put_number(table, entry.name.size());
    const auto name = std::as_bytes(std::span(entry.name));
    table.insert(table.end(), name.begin(), name.end());
  }
  for (const uint64_t sum : sums) put_number(table, sum);
  return table;
}

// Where everything lies.
struct Sizes {
  size_t table = 0, body_at = 0, body = 0;

  explicit Sizes(std::span<const PackedPart> parts) {
    for (const auto& [entry, data] : parts) {
      table += 4 * sizeof(uint64_t) + entry.name.size();
      body += entry.bytes;
    }
    table += sizeof(uint64_t) * pieces_in(body);
    body_at = align_up(kHeadBytes + table, kBodyAlignment);
  }
  size_t all() const { return body_at + body; }
};

class Output {
 public:
  Output(int fd, const std::string& name) : fd_(fd), name_(name) {}

  void write(size_t at, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_errno(name_, "cannot be written");
      at += static_cast<size_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  // So that a disk that is full says so now. Not every file system can tell.
  void reserve(size_t bytes) const {
#if defined(__linux__)
    if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
      throw_errno(name_, "cannot be written");
#else
    (void)bytes;
#endif
  }
  // The disk need not wait for the last byte.
  void begin_flush(size_t at, size_t bytes) const {
#if defined(__linux__)
    (void)::sync_file_range(fd_, static_cast<off_t>(at), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
#else
    (void)at, (void)bytes;
#endif
  }
  void finish() const {
    if (::fsync(fd_) != 0) throw_errno(name_, "cannot be written");
  }

 private:
  int fd_;
  const std::string& name_;
};

// Copies the body, and sums up its pieces. Fewer sums than pieces: it was stopped.
std::vector<uint64_t> write_body(const Output& output, std::span<const PackedPart> parts, const Sizes& sizes,
                                 const std::atomic<bool>& stop) {
  std::vector<uint64_t> sums;
  Checksum sum;
  size_t at = 0, flushed = 0;
  for (const auto& [entry, data] : parts)
    for (std::span<const std::byte> left(data.get(), entry.bytes); !left.empty();) {
      if (stop) return sums;
      const auto some = left.first(std::min(left.size(), kPiece - at % kPiece));
      sum.add(some);
      output.write(sizes.body_at + at, some);
      at += some.size();
      left = left.subspan(some.size());
      if (at % kPiece == 0 || at == sizes.body) sums.push_back(std::exchange(sum, Checksum()).value());
      if (at - flushed < kFlush) continue;
      output.begin_flush(sizes.body_at + flushed, at - flushed);
      flushed = at;
    }
  return sums;
}

}  // namespace

PackedFile::~PackedFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::unique_ptr<PackedFile> PackedFile::open(const std::filesystem::path& path, const Digest& identity, Use use) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) return nullptr;
  auto mapped = std::make_shared<MappedFile>(MappedFile::open(path));
  const std::span<const std::byte> bytes = mapped->bytes();
  const std::string& name = mapped->name();
  Head head;
  const Head expected;
  if (bytes.size() < kHeadBytes) refuse(name, "is cut short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, expected.magic, sizeof head.magic) != 0) refuse(name, "has no packed weights in it");
  if (head.head != sha256({head.before_digest()})) refuse(name, "its head is damaged");
  if (head.identity != identity) refuse(name, "has other weights in it than its name says");
  const size_t room = bytes.size() - kHeadBytes;
  if (head.table_bytes > room || head.body_at < kHeadBytes + head.table_bytes || head.body_at > bytes.size() ||
      head.body_at % kUnit != 0 || head.body_bytes != bytes.size() - head.body_at || head.body_bytes % kUnit != 0)
    refuse(name, "is cut short, or longer than it was written");
  const auto table = bytes.subspan(kHeadBytes, head.table_bytes);
  if (head.table != sha256({table})) refuse(name, "its table is damaged");

  std::unique_ptr<PackedFile> file(new PackedFile);
  file->use_ = use;
  file->name_ = name;
  file->body_at_ = head.body_at;
  file->body_bytes_ = head.body_bytes;
  file->parse_table(table, head.matrices);
  if (use == Use::map) {
    auto* body = const_cast<std::byte*>(bytes.data() + head.body_at);  // nobody writes to weights
    file->body_ = {std::move(mapped), body};
    return file;
  }
  file->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file->fd_ < 0) throw_errno(name, "cannot be read");
  file->body_ = allocate_weights(file->body_bytes_);
  return file;
}

void PackedFile::parse_table(std::span<const std::byte> table, uint64_t matrices) {
  TableReader reader(table, name_);
  size_t bytes = 0;
  for (uint64_t i = 0; i < matrices; ++i) {
    PackedEntry& entry = entries_.emplace_back();
    entry.rows = static_cast<int64_t>(reader.number());
    entry.cols = static_cast<int64_t>(reader.number());
    entry.bytes = reader.number();
    entry.name = reader.text();
    if (entry.bytes > body_bytes_ - bytes || entry.bytes % kUnit != 0) refuse(name_, "its table does not fit the file");
    bytes += entry.bytes;
  }
  if (bytes != body_bytes_) refuse(name_, "its table does not fit the file");
  for (size_t i = 0; i < pieces_in(body_bytes_); ++i) sums_.push_back(reader.number());
}

std::shared_ptr<std::byte> PackedFile::next(const PackedEntry& expected, ThreadPool& pool) {
  if (next_entry_ == entries_.size() || entries_[next_entry_] != expected)
    throw_error(ErrorKind::bad_file, "{}: has another matrix than {}", name_, expected.name);
  fill(next_at_ + expected.bytes, pool);
  std::byte* data = body_.get() + next_at_;
  ++next_entry_;
  next_at_ += expected.bytes;
  return {body_, data};
}

// Reads and checks the body as far as that, and some more.
void PackedFile::fill(size_t end, ThreadPool& pool) {
  if (end <= filled_) return;
  const size_t to = std::min(body_bytes_, align_up(std::max(end, filled_ + kWindow), kPiece));
  const size_t first = filled_ / kPiece, last = pieces_in(to);
#if defined(POSIX_FADV_WILLNEED)
  if (fd_ >= 0)  // the disk goes on while these are summed up
    (void)::posix_fadvise(fd_, static_cast<off_t>(body_at_ + filled_), static_cast<off_t>(to - filled_ + kWindow),
                          POSIX_FADV_WILLNEED);
#endif
  std::atomic<bool> good{true};
  pool.run([&](Worker& worker) {
    worker.share(static_cast<int64_t>(last - first), [&](int64_t i) {
      if (good && !fill_piece(first + static_cast<size_t>(i))) good = false;
    });
  });
  if (!good) {
    if (use_ == Use::read) drop_mapped_pages({body_.get() + filled_, body_bytes_ - filled_});
    refuse(name_, "is damaged, or its disk is");
  }
  filled_ = to;
}

bool PackedFile::fill_piece(size_t piece) const {
  const size_t at = piece * kPiece;
  const std::span<std::byte> bytes(body_.get() + at, std::min(kPiece, body_bytes_ - at));
  for (size_t done = 0; fd_ >= 0 && done < bytes.size();) {
    const ssize_t n = ::pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(body_at_ + at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  Checksum sum;
  sum.add(bytes);
  return sum.value() == sums_[piece];
}

size_t packed_file_bytes(std::span<const PackedPart> parts) { return Sizes(parts).all(); }

bool write_packed_file(int fd, const std::string& name, const Digest& identity, std::span<const PackedPart> parts,
                       const std::atomic<bool>& stop) {
  const Sizes sizes(parts);
  const Output output(fd, name);
  output.reserve(sizes.all());
  const std::vector<uint64_t> sums = write_body(output, parts, sizes, stop);
  if (stop) return false;
  const std::vector<std::byte> table = make_table(parts, sums);
  output.write(kHeadBytes, table);
  output.finish();
  if (stop) return false;
  Head head;
  head.identity = identity;
  head.matrices = parts.size();
  head.table_bytes = table.size();
  head.body_at = sizes.body_at;
  head.body_bytes = sizes.body;
  head.table = sha256({table});
  head.head = sha256({head.before_digest()});
  std::vector<std::byte> page(kHeadBytes);
  std::memcpy(page.data(), &head, sizeof head);
  output.write(0, page);
  output.finish();
  return true;
}

}  // namespace ingot::cpu
