#include "formats/gguf_write.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/memory.h"
#include "formats/computed_checkpoint.h"
#include "formats/gguf_part.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kVersion = 3;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

bool describes_the_old_file(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" || key.starts_with("split.");
}

size_t round_up(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// Everything before the tensors' data; `total` becomes the length of that.
std::string head_of(const GgufValues& values, std::span<const TensorView> tensors, size_t& total) {
  std::string head = "GGUF";
  put(head, kVersion);
  put<uint64_t>(head, tensors.size());
  put(head, values.count());
  head += values.bytes();
  total = 0;
  for (const TensorView& tensor : tensors) {
    put_string(head, tensor.name);
    put<uint32_t>(head, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      put<uint64_t>(head, static_cast<uint64_t>(*size));  // innermost first
    put(head, dtype_info(tensor.dtype).gguf_type);
    put<uint64_t>(head, total);
    total += round_up(tensor.data.size(), values.alignment());
  }
  head.resize(round_up(head.size(), values.alignment()));
  return head;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Who writes a part holds a lock on it, which the system takes back when the process ends, however it does.
bool take_lock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0; }

// Parts of the same file whose writers were killed.
void remove_orphans(const fs::path& path) {
  const std::string stem = path.filename().string() + ".";
  constexpr std::string_view kEnd = ".part";
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(path), unreadable)) {
    const std::string name = entry.path().filename().string();
    if (name.size() <= stem.size() + kEnd.size() || !name.starts_with(stem) || !name.ends_with(kEnd)) continue;
    const std::string_view pid = std::string_view(name).substr(stem.size(), name.size() - stem.size() - kEnd.size());
    if (pid.find_first_not_of("0123456789") != pid.npos) continue;
    const int descriptor = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    if (take_lock(descriptor)) ::unlink(entry.path().c_str());
    ::close(descriptor);
  }
}

// A file beside the wanted one that takes its name when it is whole.
class Output {
 public:
  explicit Output(const fs::path& path) : path_(path), partial_(path.string() + fmt::format(".{}.part", ::getpid())) {
    descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("cannot be created");
    take_lock(descriptor_);  // where the file system has no locks, nobody else gets one either
  }
  ~Output() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!kept_) ::unlink(partial_.c_str());
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_, at, std::min<size_t>(bytes, size_t{1} << 26));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("cannot be written");
      at += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void keep() {
    if (::fsync(descriptor_) != 0) fail("cannot be written");
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0) fail("cannot be written");
    kept_ = true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw_error(ErrorKind::io, "{}: {}: {}", path_.string(), what, std::strerror(errno));
  }
  fs::path path_;
  std::string partial_;
  int descriptor_ = -1;
  bool kept_ = false;
};

void check_room(const fs::path& path, size_t bytes) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder_of(path), unknown);
  if (!unknown && space.available < bytes)
    throw_error(ErrorKind::io, "{}: {} are needed and {} are free; make room or choose another disk", path.string(),
                format_bytes(bytes), format_bytes(space.available));
}

}  // namespace

void GgufValues::begin(std::string_view key, uint32_t type) {
  put_string(bytes_, key);
  put(bytes_, type);
  ++count_;
}
void GgufValues::begin_list(std::string_view key, uint32_t type, size_t count) {
  begin(key, gguf_value::array);
  put(bytes_, type);
  put<uint64_t>(bytes_, count);
}
void GgufValues::put_u32(std::string_view key, int64_t value) {
  begin(key, gguf_value::u32);
  put(bytes_, static_cast<uint32_t>(value));
}
void GgufValues::put_f32(std::string_view key, double value) {
  begin(key, gguf_value::f32);
  put(bytes_, static_cast<float>(value));
}
void GgufValues::put_bool(std::string_view key, bool value) {
  begin(key, gguf_value::boolean);
  put(bytes_, static_cast<uint8_t>(value));
}
void GgufValues::put_text(std::string_view key, std::string_view value) {
  begin(key, gguf_value::string);
  put_string(bytes_, value);
}
void GgufValues::put_texts(std::string_view key, std::span<const std::string> values) {
  begin_list(key, gguf_value::string, values.size());
  for (const std::string& value : values) put_string(bytes_, value);
}
void GgufValues::put_i32s(std::string_view key, std::span<const int32_t> values) {
  begin_list(key, gguf_value::i32, values.size());
  for (const int32_t value : values) put(bytes_, value);
}
void GgufValues::put_f32s(std::string_view key, std::span<const float> values) {
  begin_list(key, gguf_value::f32, values.size());
  for (const float value : values) put(bytes_, value);
}

void GgufValues::copy(const GgufFile& file) {
  for (const GgufRawValue& value : file.raw_values()) {
    if (describes_the_old_file(value.key)) continue;
    bytes_.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
    ++count_;
  }
  alignment_ = static_cast<size_t>(file.get_int("general.alignment").value_or(kGgufAlignment));
}

std::string gguf_bytes(const GgufValues& values, std::span<const TensorView> tensors) {
  size_t total = 0;
  std::string bytes = head_of(values, tensors, total);
  for (const TensorView& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    bytes.resize(round_up(bytes.size(), values.alignment()));
  }
  return bytes;
}

void write_gguf(const GgufTarget& target, const GgufValues& values, const Checkpoint& checkpoint,
                const std::function<void(size_t done, size_t total)>& progress) {
  if (fs::is_directory(target.path))
    throw_error(ErrorKind::bad_call, "{}: is a folder; name the file to write", target.path.string());
  if (!target.overwrite && fs::exists(target.path))
    throw_error(ErrorKind::bad_call, "{}: is there already; give another name, or --force to overwrite it",
                target.path.string());
  size_t total = 0;
  const std::string head = head_of(values, checkpoint.tensors(), total);
  remove_orphans(target.path);
  check_room(target.path, head.size() + total);

  Output output(target.path);
  output.write(head.data(), head.size());
  const std::string padding(values.alignment(), '\0');
  size_t done = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const size_t bytes = tensor.data.size(), padded = round_up(bytes, values.alignment());
    const TensorBytes data(checkpoint, tensor);
    output.write(data.bytes.data(), bytes);
    checkpoint.drop_pages(data.bytes);
    output.write(padding.data(), padded - bytes);
    done += padded;
    if (progress) progress(done, total);
  }
  output.keep();
}

}  // namespace ingot
