#include "formats/safetensors.h"

#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "formats/safetensors_part.h"

namespace ingot {

namespace fs = std::filesystem;

struct SafetensorsCheckpoint::Impl {
  std::string name;  // what was opened, for errors
  std::vector<SafetensorsPart> parts;
  std::vector<TensorView> tensors;
  std::vector<Unsupported> unsupported;
  std::unordered_map<std::string_view, size_t> index;              // names of `tensors`
  std::unordered_map<std::string_view, size_t> unsupported_index;  // names of `unsupported`
};

namespace {

using Impl = SafetensorsCheckpoint::Impl;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

void index_tensors(Impl& impl) {
  for (const SafetensorsPart& part : impl.parts) {
    impl.tensors.insert(impl.tensors.end(), part.tensors.begin(), part.tensors.end());
    impl.unsupported.insert(impl.unsupported.end(), part.unsupported.begin(), part.unsupported.end());
  }
  const auto add = [&](auto& names, const std::string& name, size_t i) {
    if (!names.emplace(name, i).second)
      throw_error(ErrorKind::bad_file, "{}: tensor {} is in two shards", impl.name, printable(name));
  };
  for (size_t i = 0; i < impl.tensors.size(); ++i) add(impl.index, impl.tensors[i].name, i);
  for (size_t i = 0; i < impl.unsupported.size(); ++i) add(impl.unsupported_index, impl.unsupported[i].name, i);
}

// A shard is a plain file beside the index: an index must not lead anywhere else.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

// tensor name -> shard file name
std::map<std::string, std::string> read_weight_map(const fs::path& path) {
  const nlohmann::json json = read_json_file(path);
  const JsonView weight_map = JsonView(json, path.string()).need_object("weight_map");
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : weight_map.value().items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>()))
      throw_error(ErrorKind::bad_file, "{}: {} must be the name of a file in the same folder", path.string(),
                  weight_map.path_of(tensor));
    shard_of[tensor] = shard.get<std::string>();
  }
  if (shard_of.empty()) throw_error(ErrorKind::bad_file, "{}: weight_map is empty", path.string());
  return shard_of;
}

void open_shards(Impl& impl, const fs::path& index_path) {
  const std::map<std::string, std::string> shard_of = read_weight_map(index_path);
  std::map<std::string, size_t> listed;  // shard -> tensors the index puts in it
  for (const auto& [tensor, shard] : shard_of) ++listed[shard];

  for (const auto& [shard, count] : listed) {
    const fs::path path = index_path.parent_path() / shard;
    if (!fs::exists(path))
      throw_error(ErrorKind::io, "{}: shard {} is missing; download the whole model", index_path.string(),
                  printable(shard));
    SafetensorsPart part = parse_safetensors_part(MappedFile::open(path));
    size_t found = 0;
    const auto check = [&](const std::string& tensor) {
      const auto entry = shard_of.find(tensor);
      if (entry == shard_of.end() || entry->second != shard)
        throw_error(ErrorKind::bad_file, "{}: tensor {} is not listed for this shard by {}", path.string(),
                    printable(tensor), index_path.filename().string());
      ++found;
    };
    for (const TensorView& tensor : part.tensors) check(tensor.name);
    for (const auto& tensor : part.unsupported) check(tensor.name);
    impl.parts.push_back(std::move(part));
    if (found == count) continue;
    // Some listed tensor is not there: name the first.
    const SafetensorsPart& opened = impl.parts.back();
    for (const auto& [tensor, of] : shard_of) {
      const auto same = [&name = tensor](const auto& t) { return t.name == name; };
      if (of == shard && std::none_of(opened.tensors.begin(), opened.tensors.end(), same) &&
          std::none_of(opened.unsupported.begin(), opened.unsupported.end(), same))
        throw_error(ErrorKind::bad_file, "{}: tensor {} is listed for shard {} but is not in it", index_path.string(),
                    printable(tensor), printable(shard));
    }
  }
}

fs::path find_in_folder(const fs::path& dir) {
  if (fs::exists(dir / kSingle)) return dir / kSingle;
  if (fs::exists(dir / kIndex)) return dir / kIndex;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir))
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
  if (found.size() == 1) return found[0];
  if (found.empty()) throw_error(ErrorKind::io, "{}: has no {} and no {}", dir.string(), kSingle, kIndex);
  throw_error(ErrorKind::bad_file, "{}: has {} .safetensors files but no {} that lists them", dir.string(),
              found.size(), kIndex);
}

}  // namespace

std::shared_ptr<SafetensorsCheckpoint> SafetensorsCheckpoint::open(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? find_in_folder(path) : path;
  auto impl = std::make_unique<Impl>();
  impl->name = file.string();
  if (file.extension() == ".json") {
    open_shards(*impl, file);
  } else {
    impl->parts.push_back(parse_safetensors_part(MappedFile::open(file)));
  }
  index_tensors(*impl);
  return std::make_shared<SafetensorsCheckpoint>(std::move(impl));
}

std::shared_ptr<SafetensorsCheckpoint> SafetensorsCheckpoint::open_bytes(std::span<const std::byte> bytes,
                                                                         std::string name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->parts.push_back(parse_safetensors_part(MappedFile::from_bytes(std::move(name), bytes)));
  index_tensors(*impl);
  return std::make_shared<SafetensorsCheckpoint>(std::move(impl));
}

SafetensorsCheckpoint::SafetensorsCheckpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsCheckpoint::~SafetensorsCheckpoint() = default;

const std::vector<TensorView>& SafetensorsCheckpoint::tensors() const { return impl_->tensors; }

const std::vector<SafetensorsCheckpoint::Unsupported>& SafetensorsCheckpoint::unsupported() const {
  return impl_->unsupported;
}

const TensorView* SafetensorsCheckpoint::find(std::string_view name) const {
  if (const auto found = impl_->index.find(name); found != impl_->index.end()) return &impl_->tensors[found->second];
  if (const auto found = impl_->unsupported_index.find(name); found != impl_->unsupported_index.end())
    throw_error(ErrorKind::declined,
                "{}: tensor {} has type {}, which is not supported; supported are F32, F16 and BF16", impl_->name,
                printable(name), impl_->unsupported[found->second].dtype);
  return nullptr;
}

uint64_t SafetensorsCheckpoint::file_bytes() const {
  uint64_t total = 0;
  for (const SafetensorsPart& part : impl_->parts) total += part.file.bytes().size();
  return total;
}

void SafetensorsCheckpoint::drop_pages(std::span<const std::byte> bytes) const {
  for (const SafetensorsPart& part : impl_->parts)
    if (part.file.contains(bytes)) part.file.drop_pages(bytes);
}

std::string SafetensorsCheckpoint::describe() const { return impl_->name; }

}  // namespace ingot
