#include "backend/metal/library.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

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

}  // namespace

NS::SharedPtr<MTL::Library> load_library(MTL::Device* device, const LibraryOptions& options) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  std::vector<std::string> failures;
  NS::SharedPtr<MTL::Library> library;
  if (!options.resources.empty()) {
    const std::filesystem::path folder = options.resources;
    library = load_compiled(device, folder / kCompiledName, failures);
    if (library) return library;
    std::ifstream file(folder / kSourceName, std::ios::binary);
    if (file) {
      const std::string source{std::istreambuf_iterator<char>(file), {}};
      library = compile(device, source, folder / kSourceName, options.bfloat, failures);
    } else {
      failures.push_back((folder / kSourceName).string() + ": no such file");
    }
    if (library) return library;
    throw_error(ErrorKind::device,
                "VLLM_METAL_PATH_RESOURCES={}: no Metal kernels there ({}); unset it to use the built-in ones",
                options.resources, fmt::join(failures, "; "));
  }
#ifdef INGOT_METALLIB
  library = load_compiled(device, INGOT_METALLIB, failures);
  if (library) return library;
#endif
  library = compile(device, kKernelSource, "the built-in source", options.bfloat, failures);
  if (library) return library;
  throw_error(ErrorKind::device, "the Metal kernels can neither be loaded nor compiled: {}", fmt::join(failures, "; "));
}

}  // namespace ingot::metal
