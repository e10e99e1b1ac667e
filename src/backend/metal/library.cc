#include "backend/metal/library.h"

#include <fstream>
#include <iterator>

#include <fmt/ranges.h>

#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr const char* kCompiledName = "ingot.metallib";
constexpr const char* kSourceName = "ingot.metal";

NS::String* text(const std::string& s) { return NS::String::string(s.c_str(), NS::UTF8StringEncoding); }
std::string reason(NS::Error* error) {
  return error != nullptr ? error->localizedDescription()->utf8String() : "no reason given";
}

NS::SharedPtr<MTL::Library> load_compiled(MTL::Device* device, const std::string& path,
                                          std::vector<std::string>& failures) {
  if (!std::filesystem::exists(path)) {
    failures.push_back(path + ": no such file");
    return {};
  }
  NS::Error* error = nullptr;
  auto library = NS::TransferPtr(device->newLibrary(NS::URL::fileURLWithPath(text(path)), &error));
  if (!library) failures.push_back(path + ": " + reason(error));
  return library;
}

// The same, if it was compiled from the source that this program has.
NS::SharedPtr<MTL::Library> load_own(MTL::Device* device, const std::string& path, std::vector<std::string>& failures) {
  auto library = load_compiled(device, path, failures);
  if (!library || NS::TransferPtr(library->newFunction(text(kKernelStamp)))) return library;
  failures.push_back(path + ": compiled from other kernels than this program's");
  return {};
}

NS::SharedPtr<MTL::Library> compile(MTL::Device* device, const std::string& source, const std::string& name,
                                    bool bfloat, std::vector<std::string>& failures) {
  const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
  options->setLanguageVersion(bfloat ? MTL::LanguageVersion3_1 : MTL::LanguageVersion2_4);
  options->setPreprocessorMacros(NS::Dictionary::dictionary(NS::Number::number(bfloat ? 1 : 0), text("INGOT_BFLOAT")));
  NS::Error* error = nullptr;
  auto library = NS::TransferPtr(device->newLibrary(text(source), options.get(), &error));
  if (!library) failures.push_back(name + ": " + reason(error));
  return library;
}

KernelLibrary load_resources(MTL::Device* device, const LibraryOptions& options) {
  const std::filesystem::path folder = options.resources;
  const std::string compiled = folder / kCompiledName, source = folder / kSourceName;
  std::vector<std::string> failures;
  if (auto library = load_compiled(device, compiled, failures)) return {library, compiled};
  if (std::ifstream file(source, std::ios::binary); file) {
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    if (auto library = compile(device, content, source, options.bfloat, failures))
      return {library, source + ", compiled at start"};
  } else {
    failures.push_back(source + ": no such file");
  }
  throw_error(ErrorKind::device,
              "VLLM_METAL_PATH_RESOURCES={}: no Metal kernels there ({}); unset it to use the built-in ones",
              options.resources, fmt::join(failures, "; "));
}

}  // namespace

std::vector<std::filesystem::path> library_places(const std::filesystem::path& folder) {
  if (folder.empty()) return {};
  return {folder / kCompiledName, folder.parent_path() / kCompiledName,
          folder.parent_path() / "lib" / "ingot" / kCompiledName};
}

KernelLibrary load_library(MTL::Device* device, const LibraryOptions& options) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  if (!options.resources.empty()) return load_resources(device, options);
  std::vector<std::string> failures;
  for (const std::filesystem::path& place : library_places(options.folder)) {
    std::error_code none;
    if (!options.bfloat || !std::filesystem::exists(place, none)) continue;  // what is compiled ahead has bf16 in it
    if (auto library = load_own(device, place, failures)) return {library, place};
    fmt::print(stderr, "ingot: {}; it is not used\n", failures.back());
  }
  if (auto library = compile(device, kKernelSource, "the built-in source", options.bfloat, failures))
    return {library, "the built-in source, compiled at start"};
  throw_error(ErrorKind::device, "the Metal kernels can neither be loaded nor compiled: {}", fmt::join(failures, "; "));
}

}  // namespace ingot::metal
