#include "engine/packed_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "core/digest.h"
#include "core/error.h"
#include "core/settings.h"
#include "engine/identity.h"

namespace ingot {
namespace {

// Some bytes of some tensors: where a file system does not keep the time of a change, or another machine's clock does.
std::string sample_of(const Checkpoint& checkpoint) {
  constexpr size_t kTensors = 32, kBytes = 64;
  const auto& tensors = checkpoint.tensors();
  const size_t step = std::max<size_t>(1, tensors.size() / kTensors);
  std::string bytes;
  for (size_t i = 0; i < tensors.size(); i += step) {
    if (tensors[i].is_computed()) continue;
    const std::span<const std::byte> data = tensors[i].data;
    const size_t some = std::min(kBytes, data.size());
    bytes.append(reinterpret_cast<const char*>(data.data()), some);
    bytes.append(reinterpret_cast<const char*>(data.data() + data.size() - some), some);
    checkpoint.drop_pages(data);  // the system maps what is around them too
  }
  return hex(sha256({std::as_bytes(std::span(bytes))}));
}

void warn(const std::string& line) { fmt::print(stderr, "ingot: {}\n", line); }

}  // namespace

std::string state_for_packed_cache(const EngineOptions& options) {
  const std::string& use = options.packed_cache;
  if (use == "off") return "";
  if (use != "read" && use != "map")
    throw_error(ErrorKind::bad_call, "--packed-cache {}: must be off, read or map", use);
  if (options.load_format == "dummy") {
    warn("--packed-cache: dummy weights are made anew each time and are not kept");
    return "";
  }
  try {
    return files_state(options);
  } catch (const std::exception&) {
    return "";  // who opens the files says it better
  }
}

void keep_packed(const EngineOptions& options, const std::string& state, const Checkpoint& checkpoint,
                 const CheckedWeights& weights, Backend& device) {
  if (state.empty()) return;
  PackedCacheOptions packed;
  packed.map = options.packed_cache == "map";
  packed.folder = options.packed_cache_dir.empty() ? cache_folder() + "/packed" : options.packed_cache_dir;
  packed.most_bytes = options.packed_cache_bytes;
  packed.identity =
      fmt::format("numerics {}\nload {} {}\nfiles\n{}sample {}\nweights\n{}", kNumerics, options.load_format,
                  options.quantize, state, sample_of(checkpoint.stored()), weights.recipe());
  EngineOptions source = options;
  source.progress = {};
  source.group = nullptr;  // it ends with the engine
  packed.changed = [source, state] {
    try {
      return files_state(source) != state;
    } catch (const std::exception&) {
      return true;
    }
  };
  packed.warn = warn;
  if (packed.changed()) {
    warn("--packed-cache: the model's files changed while they were opened; packed weights are not kept");
    return;
  }
  if (!device.keep_packed(packed))
    warn(fmt::format("--packed-cache: is of the CPU; {} packs the weights anew each time", device.info().name));
}

}  // namespace ingot
