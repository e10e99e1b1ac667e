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

// The file being gathered: always a beginning of the whole, and the hash of that beginning.
class Partial {
 public:
  Partial(fs::path path, const RemoteFile& file)
      : path_(std::move(path)), hash_(file.hash, file.size), expected_(file.size) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail("opened");
    struct stat status{};
    if (fstat(descriptor_, &status) != 0) fail("read");
    if (static_cast<uint64_t>(status.st_size) > expected_) {
      clear();
    } else {
      read_existing(static_cast<uint64_t>(status.st_size));
    }
  }
  ~Partial() { close(descriptor_); }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  uint64_t size() const { return size_; }

  void append(const char* data, size_t bytes) {
    if (bytes > expected_ - size_) throw_error(ErrorKind::io, "{}: more bytes came than the file has", path_.string());
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = pwrite(descriptor_, data + done, bytes - done, static_cast<off_t>(size_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("written");
      done += static_cast<size_t>(n);
    }
    hash_.update(data, bytes);
    size_ += bytes;
  }

  void clear() {
    if (ftruncate(descriptor_, 0) != 0) fail("emptied");
    size_ = 0;
    hash_.restart();
  }

  std::string hash() { return hash_.finish(); }

  void publish(const fs::path& blob) {
    if (fsync(descriptor_) != 0) fail("written to disk");
    if (rename(path_.c_str(), blob.c_str()) != 0) fail("renamed");
  }

 private:
  void read_existing(uint64_t bytes) {
    std::vector<char> buffer(1 << 20);
    while (size_ < bytes) {
      const ssize_t n = pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("read");
      if (n == 0) break;
      hash_.update(buffer.data(), static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
  }
  [[noreturn]] void fail(const char* what) const {
    throw_error(ErrorKind::io, "{}: cannot be {}: {}", path_.string(), what, std::strerror(errno));
  }

  fs::path path_;
  FileHash hash_;
  uint64_t expected_;
  uint64_t size_ = 0;
  int descriptor_ = -1;
};

// "bytes 100-199/200": whether it begins where we stopped, in a file of the size we know.
bool continues_at(const HttpAnswer& answer, uint64_t start, uint64_t size) {
  return answer.header("content-range") == fmt::format("bytes {}-{}/{}", start, size - 1, size);
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
                   const std::atomic<bool>& stop) {
  const std::string what = fmt::format("{}: {}", name.text(), file.path);
  Partial partial(incomplete_path(blob), file);
  const auto start_over = [&] {
    advance(-static_cast<int64_t>(partial.size()));
    partial.clear();
  };
  HttpRequest request;
  request.url = file_url(settings, name, commit, file.path);
  request.token = settings.token;
  request.leave_origin = true;
  request.stall_s = settings.stall_s;
  request.accept = [&](const HttpAnswer& answer) {
    if (answer.status == 206) return continues_at(answer, partial.size(), file.size);
    if (partial.size() > 0) start_over();  // the server sends all of it again
    return true;
  };
  request.sink = [&](const char* data, size_t bytes) {
    partial.append(data, bytes);
    advance(static_cast<int64_t>(bytes));
    return !stop.load();
  };
  int failures = 0;  // in a row, without a byte gained
  int wrong_hashes = 0;
  while (true) {
    if (partial.size() == file.size) {
      if (partial.hash() == file.hash) break;
      start_over();
      if (++wrong_hashes == 2)
        throw_error(ErrorKind::bad_file,
                    "{}: what came twice has another hash than the hub says ({}); nothing of it was kept, try later",
                    what, file.hash);
    }
    const uint64_t before = partial.size();
    request.range_start = before;
    const HttpAnswer answer = client.send(request);
    if (stop.load()) throw_error(ErrorKind::io, "{}: stopped, because another file failed", what);
    if (partial.size() == file.size) continue;
    const bool refused_range = answer.status == 416 || (answer.status == 206 && partial.size() == before);
    if (answer.status > 299 && !refused_range && !is_passing(answer)) throw_for(answer, settings, name, what);
    if (refused_range && before > 0) start_over();
    failures = partial.size() > before ? 0 : failures + 1;
    if (failures == kAttempts) {
      HttpAnswer last = answer;
      if (last.failure.empty() && last.status < 400) last.failure = "the connection ended early";
      throw_for(last, settings, name, what);
    }
    wait_before_retry(answer, failures);
  }
  partial.publish(blob);
}

}  // namespace ingot::hub
