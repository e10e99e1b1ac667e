#include "backend/metal/traffic.h"

#include <algorithm>
#include <map>

#ifndef __APPLE__
#include <softmetal/softmetal.h>
#endif

namespace ingot {

#ifdef __APPLE__

bool count_metal_traffic() { return false; }
MetalTraffic take_metal_traffic() { return {}; }

#else

bool count_metal_traffic() {
  if (!softmetal::can_count()) return false;
  softmetal::Options options = softmetal::options_from_environment();
  options.mode = softmetal::Mode::count;
  softmetal::set_options(options);
  return true;
}

MetalTraffic take_metal_traffic() {
  MetalTraffic all;
  std::map<std::string, MetalTraffic::Kernel> kernels;
  for (const softmetal::Traffic& traffic : softmetal::take_traffic()) {
    MetalTraffic::Kernel& kernel = kernels[traffic.kernel];
    kernel.name = traffic.kernel;
    ++kernel.dispatches;
    kernel.loaded += traffic.loaded;
    kernel.stored += traffic.stored;
    for (const softmetal::Traffic::Buffer& buffer : traffic.buffers) {
      // The first word of a buffer's label says what it is for.
      const std::string use = buffer.label.substr(0, buffer.label.find(' '));
      if (use == "weight") {
        all.weights += buffer.loaded;
        if (traffic.kernel.starts_with("linear")) all.matrices += buffer.loaded;
      } else if (use == "kv") {
        all.kv += buffer.loaded;
        all.kv_stored += buffer.stored;
      } else {
        all.activations += buffer.loaded;
        all.unique_activations += buffer.unique_loaded;
        all.stored += buffer.stored;
      }
    }
  }
  for (auto& [name, kernel] : kernels) all.kernels.push_back(std::move(kernel));
  std::sort(all.kernels.begin(), all.kernels.end(),
            [](const auto& a, const auto& b) { return a.loaded + a.stored > b.loaded + b.stored; });
  return all;
}

#endif

}  // namespace ingot
