#include "runtime/cuda_driver.h"

#include <dlfcn.h>

namespace softmetal::cuda {
namespace {

struct Loaded {
  Driver driver;
  bool usable = false;
  std::string reason;

  Loaded() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      reason = "no NVIDIA driver here (libcuda.so.1 is not found)";
      return;
    }
    const char* missing = nullptr;
#define SOFTMETAL_CUDA_FIND(symbol, name, ...)                                      \
  driver.name = reinterpret_cast<Result (*)(__VA_ARGS__)>(dlsym(library, #symbol)); \
  if (!driver.name && !missing) missing = #symbol;
    SOFTMETAL_CUDA_CALLS(SOFTMETAL_CUDA_FIND)
#undef SOFTMETAL_CUDA_FIND
    if (missing) {
      reason = std::string("the NVIDIA driver is too old: it has no ") + missing + "; CUDA 12.3 or newer is needed";
      return;
    }
    if (const Result result = driver.init(0); result != kSuccess) {
      reason = "the NVIDIA driver does not start: " + driver.text(result);
      return;
    }
    int count = 0;
    if (driver.device_count(&count) != kSuccess || count == 0) {
      reason = "the NVIDIA driver sees no GPU";
      return;
    }
    usable = true;
  }
};

}  // namespace

std::string Driver::text(Result result) const {
  const char *name = nullptr, *explanation = nullptr;
  error_name(result, &name);
  error_text(result, &explanation);
  return std::string(name ? name : "an unknown error") + (explanation ? std::string(" (") + explanation + ")" : "");
}

const Driver* load_driver(std::string* reason) {
  static const Loaded loaded;
  if (reason) *reason = loaded.reason;
  return loaded.usable ? &loaded.driver : nullptr;
}

}  // namespace softmetal::cuda
