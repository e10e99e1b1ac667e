#include "formats/gguf_write.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "formats/gguf_part.h"
#include "formats/made_checkpoint.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kVersion = 3;
constexpr uint32_t kU32 = 4;                  // the number of a value type
constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}
void put_u32_value(std::string& out, std::string_view key, uint32_t value) {
  put_text(out, key);
  put(out, kU32);
  put(out, value);
}

bool describes_the_old_file(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" || key.starts_with("split.");
}

size_t round_up(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// A file beside the wanted one that takes its name when it is whole.
class Output {
 public:
  explicit Output(const fs::path& path) : path_(path), partial_(path.string() + fmt::format(".{}.part", ::getpid())) {
    descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("cannot be created");
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

}  // namespace

void write_gguf(const fs::path& path, const GgufFile& metadata, const Checkpoint& checkpoint, uint32_t file_type,
                const std::function<void(size_t done, size_t total)>& progress) {
  std::string values;
  uint64_t num_values = 0;
  for (const GgufRawValue& value : metadata.raw_values()) {
    if (describes_the_old_file(value.key)) continue;
    values.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
    ++num_values;
  }
  put_u32_value(values, "general.file_type", file_type);
  put_u32_value(values, "general.quantization_version", kQuantizationVersion);
  num_values += 2;

  const auto alignment = static_cast<size_t>(metadata.get_int("general.alignment").value_or(kGgufAlignment));
  std::string head = "GGUF";
  put(head, kVersion);
  put<uint64_t>(head, checkpoint.tensors().size());
  put(head, num_values);
  head += values;
  size_t total = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    put_text(head, tensor.name);
    put<uint32_t>(head, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      put<uint64_t>(head, static_cast<uint64_t>(*size));  // innermost first
    put(head, gguf_type_number(tensor.dtype));
    put<uint64_t>(head, total);
    total += round_up(tensor.data.size(), alignment);
  }
  head.resize(round_up(head.size(), alignment));

  Output output(path);
  output.write(head.data(), head.size());
  const std::string padding(alignment, '\0');
  size_t done = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const size_t bytes = tensor.data.size();
    if (tensor.is_made()) {
      output.write(checkpoint.make(tensor)->bytes().data(), bytes);
    } else {
      output.write(tensor.data.data(), bytes);
      checkpoint.drop_pages(tensor.data);
    }
    output.write(padding.data(), round_up(bytes, alignment) - bytes);
    done += round_up(bytes, alignment);
    if (progress) progress(done, total);
  }
  output.keep();
}

}  // namespace ingot
