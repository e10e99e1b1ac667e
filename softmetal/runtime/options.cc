#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "softmetal/softmetal.h"

namespace softmetal {
namespace {

std::mutex mutex;
std::optional<Options> chosen;

[[noreturn]] void bad(const char* name, const std::string& value, const char* wanted) {
  throw std::invalid_argument(std::string(name) + "=" + value + " is not " + wanted);
}

std::optional<uint64_t> number(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  char* end = nullptr;
  const uint64_t n = std::strtoull(value, &end, 10);
  if (*end || *value == '-') bad(name, value, "a number");
  return n;
}

}  // namespace

Options options_from_environment() {
  Options o;
  if (const char* mode = std::getenv("SOFTMETAL_MODE"); mode && *mode) {
    const std::string m = mode;
    if (m == "strict") {
      o.mode = Mode::strict;
    } else if (m == "fast") {
      o.mode = Mode::fast;
    } else if (m == "count") {
      o.mode = Mode::count;
    } else {
      bad("SOFTMETAL_MODE", m, "strict, fast or count");
    }
  }
  if (const char* unwritten = std::getenv("SOFTMETAL_UNWRITTEN"); unwritten && *unwritten) {
    const std::string u = unwritten;
    if (u != "error" && u != "poison") bad("SOFTMETAL_UNWRITTEN", u, "error or poison");
    o.unwritten = u == "error" ? Unwritten::error : Unwritten::poison;
  }
  if (auto n = number("SOFTMETAL_SEED")) o.seed = *n;
  if (auto n = number("SOFTMETAL_THREADS")) o.threads = static_cast<int>(*n);
  if (auto n = number("SOFTMETAL_FAMILY")) {
    if (*n < 1 || *n > 99)
      bad("SOFTMETAL_FAMILY", std::to_string(*n), "an Apple GPU family, such as 7 for M1 or 9 for M3");
    o.gpu_family = 1000 + static_cast<int>(*n);
  }
  if (auto n = number("SOFTMETAL_MEMORY_MB")) o.working_set_bytes = *n << 20;
  if (const char* clang = std::getenv("SOFTMETAL_CLANG")) o.clang = clang;
  if (const char* cache = std::getenv("SOFTMETAL_CACHE")) o.cache = cache;
  if (const char* fault = std::getenv("SOFTMETAL_FAULT"); fault && *fault) {
    const std::string text = fault;
    const size_t colon = text.find(':');
    char* end = nullptr;
    if (colon != std::string::npos) o.fault_at = std::strtoull(text.c_str() + colon + 1, &end, 10);
    if (o.fault_at == 0 || *end != 0) bad("SOFTMETAL_FAULT", text, "KERNEL:N or copy:N, which shall fail");
    o.fault_kernel = text.substr(0, colon);
  }
  if (const char* agx = std::getenv("SOFTMETAL_AGX")) o.agx = agx;
  if (const char* ptxas = std::getenv("SOFTMETAL_PTXAS")) o.ptxas = ptxas;
  if (const char* prebuilt = std::getenv("SOFTMETAL_PREBUILT")) o.prebuilt = prebuilt;
  if (auto n = number("SOFTMETAL_COMPILE_ONLY")) o.compile_only = *n != 0;
  if (auto n = number("SOFTMETAL_GRAPHS")) o.graphs = *n != 0;
  if (auto n = number("SOFTMETAL_WARPGROUPS")) o.warpgroups = *n != 0;
  if (const char* gemm = std::getenv("SOFTMETAL_GEMM"); gemm && *gemm) {
    const std::string g = gemm;
    if (g != "none" && g != "cuda" && g != "all") bad("SOFTMETAL_GEMM", g, "none, cuda or all");
    o.gemm = g == "none" ? Gemm::none : g == "cuda" ? Gemm::cuda : Gemm::all;
  }
  if (const char* library = std::getenv("SOFTMETAL_CUBLASLT")) o.gemm_library = library;
  if (auto n = number("SOFTMETAL_ARCHITECTURE")) {
    if (*n < 80 || *n > 200) bad("SOFTMETAL_ARCHITECTURE", std::to_string(*n), "a compute capability, such as 90");
    o.architecture = static_cast<int>(*n);
  }
  if (auto n = number("SOFTMETAL_KEEP")) o.keep_sources = *n != 0;
  if (auto n = number("SOFTMETAL_LINES")) o.lines = *n != 0;
  return o;
}

void set_options(const Options& options) {
  std::lock_guard lock(mutex);
  chosen = options;
}

Options options() {
  std::lock_guard lock(mutex);
  return chosen ? *chosen : options_from_environment();
}

bool can_count() {
#if defined(SOFTMETAL_ASAN) || defined(SOFTMETAL_TSAN)
  return false;
#else
  return true;
#endif
}

}  // namespace softmetal
