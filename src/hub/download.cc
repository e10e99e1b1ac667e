#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "hub/file_hash.h"

namespace ingot::hub {
namespace {

namespace fs = std::filesystem;

fs::path incomplete_path(const fs::path& blob) { return blob.string() + ".incomplete"; }

[[noreturn]] void fail(const fs::path& path, const char* what) {
  const int error = errno;
  throw_error(ErrorKind::io, "{}: cannot be {}: {}{}", path.string(), what, std::strerror(error),
              error == ENOSPC || error == EDQUOT || error == EFBIG
                  ? "; make room, or set HF_HOME to another disk; what came so far is kept"
                  : "; may this user write there?");
}

// An open file.
class Descriptor {
 public:
  explicit Descriptor(const fs::path& path) : number_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (number_ < 0) fail(path, "opened");
  }
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

// The file being gathered: always a beginning of the whole, and the hash of that beginning.
class Partial {
 public:
  Partial(fs::path path, const RemoteFile& file)
      : path_(std::move(path)), hash_(file.hash, file.size), expected_(file.size), descriptor_(path_) {
    const uint64_t bytes = bytes_on_disk();
    if (bytes > expected_)
      clear();
    else
      read_existing(bytes);
  }

  uint64_t size() const { return size_; }

  // False, and nothing kept, when that is more than the file has.
  bool append(const char* data, size_t bytes) {
    if (bytes > expected_ - size_) return false;
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = pwrite(descriptor_.get(), data + done, bytes - done, static_cast<off_t>(size_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(path_, "written");
      done += static_cast<size_t>(n);
    }
    hash_.update(data, bytes);
    size_ += bytes;
    return true;
  }

  void clear() {
    if (ftruncate(descriptor_.get(), 0) != 0) fail(path_, "emptied");
    size_ = 0;
    hash_.restart();
  }

  std::string hash() { return hash_.finish(); }

  void discard() { unlink(path_.c_str()); }

  void publish(const fs::path& blob) {
    if (fsync(descriptor_.get()) != 0) fail(path_, "written to disk");
    // Locks mean nothing on some network file systems: then somebody else may have been at this file.
    if (bytes_on_disk() != expected_)
      throw_error(ErrorKind::io, "{}: was changed by another process meanwhile; try again", path_.string());
    if (rename(path_.c_str(), blob.c_str()) != 0 && !(errno == ENOENT && fs::exists(blob))) fail(path_, "renamed");
  }

 private:
  uint64_t bytes_on_disk() const {
    struct stat status{};
    if (fstat(descriptor_.get(), &status) != 0) fail(path_, "read");
    return static_cast<uint64_t>(status.st_size);
  }
  void read_existing(uint64_t bytes) {
    std::vector<char> buffer(1 << 20);
    while (size_ < bytes) {
      const ssize_t n = pread(descriptor_.get(), buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(path_, "read");
      if (n == 0) break;
      hash_.update(buffer.data(), static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
  }

  fs::path path_;
  FileHash hash_;
  uint64_t expected_;
  Descriptor descriptor_;
  uint64_t size_ = 0;
};

// "bytes 100-149/200": whether it begins where we stopped, in a file of the size we know. It may end early.
bool continues_at(const FetchReply& answer, uint64_t start, uint64_t size) {
  const std::string range = answer.header("content-range");
  return range.starts_with(fmt::format("bytes {}-", start)) && range.ends_with(fmt::format("/{}", size));
}

}  // namespace

uint64_t bytes_present(const fs::path& blob, const RemoteFile& file) {
  std::error_code error;
  if (fs::exists(blob, error)) return file.size;
  const uintmax_t size = fs::file_size(incomplete_path(blob), error);
  return error || size > file.size ? 0 : size;
}

void download_file(HttpClient& client, const HubSettings& settings, const ModelName& name, const std::string& commit,
                   const RemoteFile& file, const fs::path& blob, const std::function<void(int64_t)>& advance,
                   const Patience& patience) {
  const std::string what = fmt::format("{}: {}", name.text(), file.path);
  Partial partial(incomplete_path(blob), file);
  const auto start_over = [&] {
    advance(-static_cast<int64_t>(partial.size()));
    partial.clear();
  };
  const auto stopped = [&] { return patience.stop != nullptr && *patience.stop; };
  bool other_range = false;
  bool too_long = false;
  FetchRequest request;
  request.url = file_url(settings, name, commit, file.path);
  request.token = settings.token;
  request.ca_file = settings.ca_file;
  request.leave_origin = true;
  request.stall_s = settings.stall_s;
  request.accept = [&](const FetchReply& answer) {
    other_range = answer.status == 206 && !continues_at(answer, partial.size(), file.size);
    if (answer.status != 206 && partial.size() > 0) start_over();  // the server sends all of it again
    return !other_range;
  };
  request.sink = [&](const char* data, size_t bytes) {
    too_long = !partial.append(data, bytes);
    if (too_long) return false;
    advance(static_cast<int64_t>(bytes));
    return !stopped();
  };
  int failures = 0;  // in a row, without a byte gained
  for (int wrong = 0;;) {
    if (too_long || partial.size() == file.size) {
      if (!too_long && partial.hash() == file.hash) break;
      too_long = false;
      start_over();
      if (++wrong == 2) {
        partial.discard();
        throw_error(ErrorKind::bad_file,
                    "{}: what came has another hash than the hub says ({}), twice; it was deleted, try again later",
                    what, file.hash);
      }
    }
    const uint64_t before = partial.size();
    request.range_start = before;
    other_range = false;
    const FetchReply answer = client.send(request);
    if (stopped()) throw_error(ErrorKind::io, "{}: stopped, because another file failed", what);
    if (too_long || partial.size() == file.size) continue;
    const bool refused_range = answer.status == 416 || other_range;
    if (!refused_range && !is_passing(answer) && (answer.status > 299 || !answer.failure.empty()))
      throw_for(answer, settings, name, what);
    if (refused_range && before > 0) start_over();
    failures = partial.size() > before ? 0 : failures + 1;
    if (failures == kAttempts) {
      FetchReply last = answer;
      if (last.failure.empty() && last.status < 400) last.failure = "the connection ended early";
      throw_for(last, settings, name, what);
    }
    wait_before_retry(answer, failures, what, patience);
  }
  partial.publish(blob);
}

}  // namespace ingot::hub
