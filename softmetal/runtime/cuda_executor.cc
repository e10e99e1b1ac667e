#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "compiler/driver.h"
#include "compiler/process.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_stream.h"
#include "runtime/executor.h"
#include "runtime/library_file.h"
#include "runtime/unbacked.h"
#include "shim/sm/abi.h"
#include "softmetal/cuda.h"

namespace softmetal {
namespace {

constexpr int kWarpgroups = 90;  // the compute capability whose simdgroups multiply four together

// The part that needs no GPU: source to kernels.
class CudaCompiler : public Executor {
 public:
  explicit CudaCompiler(const Options& options) : options_(options) {}

  std::shared_ptr<const Program> compile(const std::string& source,
                                         const std::vector<std::pair<std::string, std::string>>& macros) override {
    SourceOptions options;
    options.macros = macros;
    options.grids = true;
    options.warpgroups = warpgroups() > 0;
    return std::make_shared<Program>(translate(driver().preprocess(source, options)));
  }
  std::shared_ptr<const Program> load(const std::string& path) override {
    return std::make_shared<Program>(translate(read_library_file(path)));
  }

 protected:
  Driver::Grid build_grid(const Program& program, const std::string& kernel,
                          const std::vector<ConstantValue>& constants, int capability) {
    const KernelInfo* info = program.find(kernel);
    if (!info) throw CompileError("the library has no kernel named " + kernel);
    // The newest that clang knows and the GPU runs: the driver takes what was made for older ones.
    const std::string architecture = capability == kWarpgroups ? "90a" : std::to_string(std::min(capability, 90));
    return driver().build_grid(program, *info, constants, architecture);
  }
  Driver& driver() {
    std::lock_guard lock(driver_mutex_);
    if (!driver_) driver_.emplace(options_);
    return *driver_;
  }

  Options options_;
  std::mutex driver_mutex_;
  std::optional<Driver> driver_;
};

// --- without a GPU
// --------------------------------------------------------------------------------------------------------

std::mutex compiled_mutex;
std::vector<Compiled> compiled;

class CompileOnlyExecutor : public CudaCompiler {
 public:
  using CudaCompiler::CudaCompiler;
  std::string name() const override { return "CUDA (compiles only)"; }
  uint64_t memory_bytes() const override { return uint64_t{128} << 30; }
  size_t max_threadgroup_bytes() const override { return size_t{options_.architecture >= 90 ? 227u : 99u} << 10; }
  std::shared_ptr<Memory> allocate(size_t bytes, Storage storage, bool) override {
    return std::make_shared<UnbackedMemory>(bytes, storage);
  }
  std::shared_ptr<Kernel> build(const Program& program, const std::string& kernel,
                                const std::vector<ConstantValue>& constants) override {
    const Driver::Grid grid = build_grid(program, kernel, constants, options_.architecture);
    {
      std::lock_guard lock(compiled_mutex);
      compiled.push_back({kernel, constants_line(constants), grid.report});
    }
    auto built = std::make_shared<Kernel>();
    built->name = kernel;
    return built;
  }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<IdleStream>(); }
  // So that the kernels beside it are compiled too.
  unsigned warpgroups() const override { return options_.warpgroups && options_.architecture == kWarpgroups ? 132 : 0; }
  std::string gemm_name() override { return options_.gemm == Gemm::none ? "" : "none yet"; }
  std::string prepare_gemm(const GemmShape&) override { return ""; }
};

// --- with one
// -------------------------------------------------------------------------------------------------------------

class CudaExecutor : public CudaCompiler {
 public:
  CudaExecutor(const Options& options, std::shared_ptr<CudaDevice> device)
      : CudaCompiler(options), device_(std::move(device)) {
    const cuda::Driver& d = *device_->driver;
    char name[256] = "NVIDIA GPU";
    d.device_name(name, sizeof name, device_->device);
    name_ = name;
    int major = 0, minor = 0, version = 0;
    d.device_attribute(&major, cuda::kAttributeMajor, device_->device);
    d.device_attribute(&minor, cuda::kAttributeMinor, device_->device);
    d.driver_version(&version);
    capability_ = major * 10 + minor;
    if (capability_ < 80)
      throw std::runtime_error(name_ + " is older than compute capability 8.0, which the kernels need");
    name_ += ", CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    device_->overlapped = capability_ >= 90;
    int shared = 0;
    d.device_attribute(&shared, cuda::kAttributeSharedBytes, device_->device);
    int multiprocessors = 0;
    d.device_attribute(&multiprocessors, cuda::kAttributeMultiprocessors, device_->device);
    multiprocessors_ = static_cast<unsigned>(multiprocessors);
    threadgroup_bytes_ = std::max(static_cast<size_t>(shared), kMaxThreadgroupBytes);
  }

  std::string name() const override { return name_; }
  uint64_t memory_bytes() const override {
    device_->enter();
    size_t free = 0, total = 0;
    device_->driver->memory_info(&free, &total);
    return total - total / 20;  // the driver, modules and other programs
  }
  size_t max_threadgroup_bytes() const override { return threadgroup_bytes_; }
  unsigned warpgroups() const override {
    return options_.warpgroups && capability_ == kWarpgroups ? multiprocessors_ : 0;
  }
  std::shared_ptr<Memory> allocate(size_t bytes, Storage storage, bool tracked) override {
    return std::make_shared<CudaMemory>(device_, bytes, storage, tracked);
  }
  std::shared_ptr<Kernel> build(const Program& program, const std::string& kernel,
                                const std::vector<ConstantValue>& constants) override;
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<CudaStream>(device_); }
  // The library is large: it is loaded when somebody asks for it.
  std::string gemm_name() override {
    std::call_once(gemm_loaded_, [this] {
      if (options_.gemm == Gemm::none) return;
      device_->enter();
      device_->gemm = CudaGemm::load(options_.gemm_library);
    });
    return device_->gemm ? device_->gemm->name() : "";
  }
  std::string prepare_gemm(const GemmShape& shape) override {
    if (gemm_name().empty()) return Executor::prepare_gemm(shape);
    device_->enter();
    return device_->gemm->prepare(shape);
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::string name_;
  int capability_ = 0;
  unsigned multiprocessors_ = 0;
  size_t threadgroup_bytes_ = kMaxThreadgroupBytes;
  std::once_flag gemm_loaded_;
};

std::shared_ptr<Kernel> CudaExecutor::build(const Program& program, const std::string& kernel,
                                            const std::vector<ConstantValue>& constants) {
  const Driver::Grid grid = build_grid(program, kernel, constants, capability_);
  const cuda::Driver& d = *device_->driver;
  const auto check = [&](cuda::Result r, const char* what) {
    if (r != cuda::kSuccess)
      throw CompileError("kernel " + kernel + ": " + what + " (" + grid.path + "): " + d.text(r));
  };
  device_->enter();
  auto built = std::make_shared<CudaKernel>();
  built->name = kernel;
  built->device = device_;
  const std::string code = read_file(grid.path);
  check(d.module_load(&built->module, code.c_str()), "it cannot be loaded");
  check(d.module_function(&built->function, built->module, "softmetal_grid"), "there is no grid in it");
  int value = 0;
  check(d.function_attribute(&value, cuda::kFunctionMaxThreads, built->function), "no attributes");
  built->max_threads = static_cast<unsigned>(value);
  check(d.function_attribute(&value, cuda::kFunctionSharedBytes, built->function), "no attributes");
  built->static_threadgroup_bytes = static_cast<size_t>(value);
  built->max_threadgroup_bytes = threadgroup_bytes_;

  cuda::Address address = 0;
  size_t bytes = 0;
  check(d.module_global(&address, &bytes, built->module, "softmetal_arguments"), "it has no list of arguments");
  std::vector<abi::GridArgument> list(bytes / sizeof(abi::GridArgument));
  check(d.copy_to_host(list.data(), address, bytes), "its list of arguments cannot be read");
  const KernelInfo& info = *program.find(kernel);
  size_t threadgroup_arguments = 0;
  for (const abi::GridArgument& a : list) threadgroup_arguments += a.kind == abi::kThreadgroup;
  if (threadgroup_arguments > 0)
    check(d.set_function_attribute(built->function, cuda::kFunctionMaxDynamicBytes,
                                   static_cast<int>(threadgroup_bytes_ - built->static_threadgroup_bytes)),
          "it cannot have the threadgroup memory there is");
  for (const abi::GridArgument& a : list) {
    if (a.kind != abi::kBuffer && a.kind != abi::kThreadgroup) continue;
    const bool threadgroup = a.kind == abi::kThreadgroup;
    if (!threadgroup || threadgroup_arguments > 1)
      built->parameters.push_back({a.index, threadgroup, a.by_value != 0, a.bytes});
    if (!a.enabled) continue;
    std::string name;
    for (const KernelParameter& p : info.parameters) {
      if (p.index == a.index && p.kind == (threadgroup ? "kThreadgroup" : "kBuffer")) name = p.name;
    }
    built->arguments.push_back({threadgroup, a.index, name, a.bytes, a.alignment, a.writable != 0});
  }
  return built;
}

}  // namespace

std::vector<Compiled> take_compiled() {
  std::lock_guard lock(compiled_mutex);
  return std::exchange(compiled, {});
}

std::shared_ptr<Executor> make_cuda_executor(const Options& options) {
  if (options.compile_only) return std::make_shared<CompileOnlyExecutor>(options);
  std::string reason;
  auto device = std::make_shared<CudaDevice>();
  device->driver = cuda::load_driver(&reason);
  if (!device->driver) throw std::runtime_error(reason);
  device->graphs = options.graphs;
  const cuda::Driver& d = *device->driver;
  cuda::Result r = d.device_get(&device->device, 0);
  if (r == cuda::kSuccess) r = d.context_retain(&device->context, device->device);
  if (r != cuda::kSuccess) throw std::runtime_error("the NVIDIA GPU cannot be used: " + d.text(r));
  device->fault_kernel = options.fault_kernel;
  device->faults_left = options.fault_at;
  return std::make_shared<CudaExecutor>(options, std::move(device));
}

}  // namespace softmetal
