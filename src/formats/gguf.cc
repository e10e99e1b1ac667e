#include "formats/gguf.h"

#include <unordered_map>

#include "core/error.h"
#include "core/printable.h"
#include "formats/gguf_part.h"

namespace ingot {

struct GgufFile::Impl {
  std::vector<GgufPart> parts;  // parts[0] holds the metadata
  std::vector<TensorView> tensors;
  std::unordered_map<std::string_view, size_t> index;  // names of `tensors`
};

namespace {

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

// name-00002-of-00007.gguf
struct SplitName {
  std::string prefix;
  int64_t number = 0;  // from 1
  int64_t count = 0;
};

std::optional<SplitName> parse_split_name(const std::string& file_name) {
  constexpr std::string_view kEnding = ".gguf";
  constexpr size_t kTail = sizeof("-00001-of-00003") - 1;
  if (file_name.size() <= kTail + kEnding.size() || !file_name.ends_with(kEnding)) return std::nullopt;
  const size_t start = file_name.size() - kEnding.size() - kTail;
  const std::string_view tail = std::string_view(file_name).substr(start, kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  const auto digits = [](std::string_view text) -> int64_t {
    int64_t value = 0;
    for (char c : text) {
      if (c < '0' || c > '9') return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  };
  SplitName name{file_name.substr(0, start), digits(tail.substr(1, 5)), digits(tail.substr(10, 5))};
  if (name.number < 1 || name.count < 1) return std::nullopt;
  return name;
}

int64_t split_value(const GgufPart& part, std::string_view key, int64_t fallback) {
  const auto found = part.values.find(key);
  if (found == part.values.end()) return fallback;
  const int64_t* value = std::get_if<int64_t>(&found->second);
  if (value == nullptr || *value < 0)
    throw_error(ErrorKind::bad_file, "{}: key {} must be a non-negative integer", part.file.name(), key);
  return *value;
}

void check_split_place(const GgufPart& part, int64_t number, int64_t count) {
  const int64_t has_number = split_value(part, kSplitNumber, -1);
  const int64_t has_count = split_value(part, kSplitCount, -1);
  if (has_number != number - 1 || has_count != count)
    throw_error(ErrorKind::bad_file, "{}: keys {} = {} and {} = {} do not fit part {} of {}", part.file.name(),
                kSplitNumber, has_number, kSplitCount, has_count, number, count);
}

// parts[0] is open and says that it is one of `count` files.
void open_other_parts(std::vector<GgufPart>& parts, const std::filesystem::path& path, int64_t count) {
  const std::optional<SplitName> name = parse_split_name(path.filename().string());
  const std::string& first = parts[0].file.name();
  if (!name || name->count != count)
    throw_error(ErrorKind::bad_file,
                "{}: is one of {} files of a split model; it must be named like name-00001-of-{:05}.gguf", first, count,
                count);
  if (name->number != 1)
    throw_error(ErrorKind::bad_call, "{}: is part {} of {} of a split model; open {}-00001-of-{:05}.gguf instead",
                first, name->number, count, name->prefix, count);
  check_split_place(parts[0], 1, count);
  for (int64_t number = 2; number <= count; ++number) {
    const std::string file_name = fmt::format("{}-{:05}-of-{:05}.gguf", name->prefix, number, count);
    parts.push_back(parse_gguf_part(MappedFile::open(path.parent_path() / file_name)));
    check_split_place(parts.back(), number, count);
  }
}

void index_tensors(GgufFile::Impl& impl) {
  for (const GgufPart& part : impl.parts)
    impl.tensors.insert(impl.tensors.end(), part.tensors.begin(), part.tensors.end());
  impl.index.reserve(impl.tensors.size());
  for (size_t i = 0; i < impl.tensors.size(); ++i) {
    if (!impl.index.emplace(impl.tensors[i].name, i).second)
      throw_error(ErrorKind::bad_file, "{}: tensor {} is in two files of the split model", impl.parts[0].file.name(),
                  printable(impl.tensors[i].name));
  }
  const int64_t total = split_value(impl.parts[0], kSplitTensors, -1);
  if (impl.parts.size() > 1 && total != static_cast<int64_t>(impl.tensors.size()))
    throw_error(ErrorKind::bad_file, "{}: key {} says {} tensors but the {} files have {}", impl.parts[0].file.name(),
                kSplitTensors, total, impl.parts.size(), impl.tensors.size());
}

std::string_view type_name(const GgufValue& value) {
  constexpr std::string_view kNames[] = {"a truth value",      "an integer",           "a float",
                                         "a string",           "an array of integers", "an array of floats",
                                         "an array of strings"};
  return kNames[value.index()];
}

}  // namespace

std::shared_ptr<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->parts.push_back(parse_gguf_part(MappedFile::open(path)));
  const int64_t count = split_value(impl->parts[0], kSplitCount, 1);
  if (count > 1) open_other_parts(impl->parts, path, count);
  index_tensors(*impl);
  return std::make_shared<GgufFile>(std::move(impl));
}

std::shared_ptr<GgufFile> GgufFile::open_bytes(std::span<const std::byte> bytes, std::string name) {
  auto impl = std::make_unique<Impl>();
  impl->parts.push_back(parse_gguf_part(MappedFile::from_bytes(std::move(name), bytes)));
  if (split_value(impl->parts[0], kSplitCount, 1) > 1)
    throw_error(ErrorKind::bad_file, "{}: is one of several files of a split model", impl->parts[0].file.name());
  index_tensors(*impl);
  return std::make_shared<GgufFile>(std::move(impl));
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;

const std::map<std::string, GgufValue, std::less<>>& GgufFile::values() const { return impl_->parts[0].values; }

const GgufValue* GgufFile::find_value(std::string_view key) const {
  const auto found = values().find(key);
  return found == values().end() ? nullptr : &found->second;
}

// The value of the alternative T, nullptr when the key is absent.
template <typename T>
static const T* typed(const GgufFile& file, std::string_view key, std::string_view wanted) {
  const GgufValue* value = file.find_value(key);
  if (value == nullptr) return nullptr;
  if (const T* found = std::get_if<T>(value)) return found;
  throw_error(ErrorKind::bad_file, "{}: key {} must be {}, it is {}", file.name(), printable(key), wanted,
              type_name(*value));
}

template <typename T>
static std::optional<T> copied(const T* value) {
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  return copied(typed<bool>(*this, key, "a truth value"));
}

std::optional<int64_t> GgufFile::get_int(std::string_view key) const {
  return copied(typed<int64_t>(*this, key, "an integer"));
}

std::optional<double> GgufFile::get_double(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value != nullptr && std::holds_alternative<int64_t>(*value))
    return static_cast<double>(std::get<int64_t>(*value));
  return copied(typed<double>(*this, key, "a number"));
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  return copied(typed<std::string_view>(*this, key, "a string"));
}

const std::vector<int64_t>* GgufFile::get_ints(std::string_view key) const {
  return typed<std::vector<int64_t>>(*this, key, "an array of integers");
}

const std::vector<double>* GgufFile::get_doubles(std::string_view key) const {
  return typed<std::vector<double>>(*this, key, "an array of floats");
}

const std::vector<std::string_view>* GgufFile::get_strings(std::string_view key) const {
  return typed<std::vector<std::string_view>>(*this, key, "an array of strings");
}

const std::vector<TensorView>& GgufFile::tensors() const { return impl_->tensors; }

const TensorView* GgufFile::find(std::string_view name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

const std::vector<GgufRawValue>& GgufFile::raw_values() const { return impl_->parts[0].raw_values; }

uint64_t GgufFile::file_bytes() const {
  uint64_t total = 0;
  for (const GgufPart& part : impl_->parts) total += part.file.bytes().size();
  return total;
}

void GgufFile::drop_pages(std::span<const std::byte> bytes) const {
  for (const GgufPart& part : impl_->parts)
    if (part.file.contains(bytes)) part.file.drop_pages(bytes);
}

const std::string& GgufFile::name() const { return impl_->parts[0].file.name(); }
uint32_t GgufFile::version() const { return impl_->parts[0].version; }
std::string GgufFile::describe() const { return name(); }

}  // namespace ingot
