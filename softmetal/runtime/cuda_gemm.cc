#include "runtime/cuda_gemm.h"

#include <dlfcn.h>

#include <utility>

namespace softmetal {
namespace {

// Types and numbers of cuBLASLt's binary interface, the same in versions 12 and 13.
using Status = int;
using Handle = void*;
using Layout = void*;
using Description = void*;
using Preference = void*;
struct Algorithm {
  uint64_t data[8];
};
struct Found {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
constexpr int kFloat = 0, kHalf = 2, kBfloat = 14;  // cudaDataType
constexpr int kComputeFloat = 68;
constexpr int kTransposed = 1;
constexpr int kDescribeTransposeA = 3;
constexpr int kLayoutColumns = 3;
constexpr int kPreferWorkspace = 1, kPreferReductions = 3, kPreferAlignmentA = 5;
constexpr int kConfigSplits = 2;
constexpr uint32_t kAlignment = 16;  // of rows of x and of the results; more is not promised
// The number of rows that the algorithm is chosen for.
constexpr uint64_t kUsualRows = 2048;
constexpr int kCandidates = 8;

int type_number(GemmType type) { return type == GemmType::f16 ? kHalf : type == GemmType::bf16 ? kBfloat : kFloat; }

}  // namespace

#define SOFTMETAL_GEMM_CALLS(X)                                                                                        \
  X(cublasLtCreate, create, Handle*)                                                                                   \
  X(cublasLtDestroy, destroy, Handle)                                                                                  \
  X(cublasLtMatmulDescCreate, describe, Description*, int, int)                                                        \
  X(cublasLtMatmulDescDestroy, destroy_description, Description)                                                       \
  X(cublasLtMatmulDescSetAttribute, set_description, Description, int, const void*, size_t)                            \
  X(cublasLtMatrixLayoutCreate, lay_out, Layout*, int, uint64_t, uint64_t, int64_t)                                    \
  X(cublasLtMatrixLayoutDestroy, destroy_layout, Layout)                                                               \
  X(cublasLtMatrixLayoutSetAttribute, set_layout, Layout, int, const void*, size_t)                                    \
  X(cublasLtMatmulPreferenceCreate, prefer, Preference*)                                                               \
  X(cublasLtMatmulPreferenceDestroy, destroy_preference, Preference)                                                   \
  X(cublasLtMatmulPreferenceSetAttribute, set_preference, Preference, int, const void*, size_t)                        \
  X(cublasLtMatmulAlgoGetHeuristic, find, Handle, Description, Layout, Layout, Layout, Layout, Preference, int,        \
    Found*, int*)                                                                                                      \
  X(cublasLtMatmulAlgoConfigGetAttribute, configuration, const Algorithm*, int, void*, size_t, size_t*)                \
  X(cublasLtMatmul, multiply, Handle, Description, const void*, const void*, Layout, const void*, Layout, const void*, \
    const void*, Layout, void*, Layout, const Algorithm*, void*, size_t, cuda::StreamHandle)

struct CudaGemm::Calls {
#define SOFTMETAL_GEMM_MEMBER(symbol, name, ...) Status (*name)(__VA_ARGS__) = nullptr;
  SOFTMETAL_GEMM_CALLS(SOFTMETAL_GEMM_MEMBER)
#undef SOFTMETAL_GEMM_MEMBER
  size_t (*version)() = nullptr;
};

// In the library's terms, where columns are contiguous: results [outputs, rows] = weights^T [outputs, cols] x [cols,
// rows].
struct CudaGemm::Plan {
  const Calls* calls = nullptr;
  Description description = nullptr;
  Layout weights = nullptr, x = nullptr, results = nullptr;
  Algorithm algorithm{};

  ~Plan() {
    if (description) calls->destroy_description(description);
    for (Layout layout : {weights, x, results})
      if (layout) calls->destroy_layout(layout);
  }
  bool set_rows(uint64_t rows) const {
    return calls->set_layout(x, kLayoutColumns, &rows, sizeof rows) == 0 &&
           calls->set_layout(results, kLayoutColumns, &rows, sizeof rows) == 0;
  }
};

CudaGemm::CudaGemm() : calls_(std::make_unique<Calls>()) {}

CudaGemm::~CudaGemm() {
  plans_.clear();
  if (handle_) calls_->destroy(handle_);
}

std::unique_ptr<CudaGemm> CudaGemm::load(const std::string& library) {
  void* file = nullptr;
  if (!library.empty()) {
    file = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
      if (!file) file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!file) return nullptr;
  std::unique_ptr<CudaGemm> gemm(new CudaGemm);
  Calls& calls = *gemm->calls_;
  bool complete = true;
#define SOFTMETAL_GEMM_FIND(symbol, name, ...)                                  \
  calls.name = reinterpret_cast<Status (*)(__VA_ARGS__)>(dlsym(file, #symbol)); \
  if (!calls.name) complete = false;
  SOFTMETAL_GEMM_CALLS(SOFTMETAL_GEMM_FIND)
#undef SOFTMETAL_GEMM_FIND
  calls.version = reinterpret_cast<size_t (*)()>(dlsym(file, "cublasLtGetVersion"));
  if (!complete || !calls.version) return nullptr;
  if (calls.create(&gemm->handle_) != 0) {
    gemm->handle_ = nullptr;
    return nullptr;
  }
  return gemm;
}

std::string CudaGemm::name() const {
  const size_t version = calls_->version();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100);
}

CudaGemm::Plan* CudaGemm::plan(const GemmShape& shape, std::string* error) {
  std::lock_guard lock(mutex_);
  auto& known = plans_[shape];
  if (known) return known.get();
  auto made = std::make_unique<Plan>();
  made->calls = calls_.get();
  const Calls& c = *calls_;
  Status status = c.describe(&made->description, kComputeFloat, kFloat);
  if (status == 0) status = c.set_description(made->description, kDescribeTransposeA, &kTransposed, sizeof kTransposed);
  const auto stride = static_cast<int64_t>(shape.stride);
  const int type = type_number(shape.type), out = type_number(shape.out);
  if (status == 0) status = c.lay_out(&made->weights, type, shape.cols, shape.outputs, stride);
  if (status == 0) status = c.lay_out(&made->x, type, shape.cols, kUsualRows, stride);
  if (status == 0) status = c.lay_out(&made->results, out, shape.outputs, kUsualRows, shape.out_stride);
  Preference preference = nullptr;
  if (status == 0) status = c.prefer(&preference);
  const size_t workspace = 0;
  const uint32_t reductions = 0;  // none: columns are never cut
  if (status == 0) status = c.set_preference(preference, kPreferWorkspace, &workspace, sizeof workspace);
  if (status == 0) status = c.set_preference(preference, kPreferReductions, &reductions, sizeof reductions);
  for (int which = 0; which < 4 && status == 0; ++which)
    status = c.set_preference(preference, kPreferAlignmentA + which, &kAlignment, sizeof kAlignment);
  Found found[kCandidates] = {};
  int count = 0;
  if (status == 0)
    status = c.find(handle_, made->description, made->weights, made->x, made->results, made->results, preference,
                    kCandidates, found, &count);
  if (preference) c.destroy_preference(preference);
  bool chosen = false;
  for (int i = 0; i < count && status == 0 && !chosen; ++i) {
    int32_t splits = 0;
    size_t written = 0;
    c.configuration(&found[i].algorithm, kConfigSplits, &splits, sizeof splits, &written);
    if (found[i].state != 0 || found[i].workspace_bytes != 0 || splits > 1) continue;
    made->algorithm = found[i].algorithm;
    chosen = true;
  }
  if (!chosen) {
    *error = "cuBLASLt has no way to multiply by " + std::to_string(shape.outputs) + " x " +
             std::to_string(shape.cols) + (status != 0 ? " (status " + std::to_string(status) + ")" : "");
    return nullptr;
  }
  known = std::move(made);
  return known.get();
}

std::string CudaGemm::prepare(const GemmShape& shape) {
  std::string error;
  plan(shape, &error);
  return error;
}

std::string CudaGemm::launch(const GemmCommand& command, cuda::StreamHandle stream) {
  std::string error;
  const Plan* made = plan(command.shape, &error);
  if (!made) return error;
  const auto address = [](const Memory* memory, size_t offset) {
    return reinterpret_cast<void*>(memory->device_address() + offset);
  };
  const float one = 1, beta = command.shape.accumulate ? 1.0f : 0.0f;
  void* out = address(command.out, command.out_offset);
  if (!made->set_rows(command.rows)) return "cuBLASLt takes no matrix of " + std::to_string(command.rows) + " rows";
  const Status status =
      calls_->multiply(handle_, made->description, &one, address(command.weights, command.weights_offset),
                       made->weights, address(command.x, command.x_offset), made->x, &beta, out, made->results, out,
                       made->results, &made->algorithm, nullptr, 0, stream);
  return status == 0 ? "" : "a product of matrices by cuBLASLt: status " + std::to_string(status);
}

}  // namespace softmetal
