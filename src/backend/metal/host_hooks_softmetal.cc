#include <dlfcn.h>
#include <link.h>
#include <softmetal/agx.h>
#include <softmetal/audit.h>
#include <softmetal/cuda.h>
#include <softmetal/gemm.h>
#include <softmetal/softmetal.h>
#include <softmetal/stream.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "backend/metal/host_hooks.h"
#include "backend/metal/traffic.h"
#include "core/error.h"

namespace ingot::metal::host {
namespace {

softmetal::GemmElement element(DType type) {
  return type == DType::f16    ? softmetal::GemmElement::f16
         : type == DType::bf16 ? softmetal::GemmElement::bf16
                               : softmetal::GemmElement::f32;
}

softmetal::GemmProduct product_of(const GemmProduct& p) {
  return {.type = element(p.type),
          .out_type = element(p.out_type),
          .accumulate = p.accumulate,
          .rows = static_cast<uint64_t>(p.rows),
          .outputs = static_cast<uint64_t>(p.outputs),
          .cols = static_cast<uint64_t>(p.cols),
          .stride = static_cast<uint64_t>(p.stride),
          .out_stride = static_cast<uint64_t>(p.out_stride)};
}

}  // namespace

bool is_software() { return true; }
bool has_bfloat() { return true; }
bool has_residency_sets() { return true; }

std::filesystem::path own_folder() {
  Dl_info image{};
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&own_folder), &image, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0)
    return {};
  // The program itself has no name in the list of what is loaded.
  const bool program = map->l_name == nullptr || *map->l_name == 0;
  std::error_code none;
  return std::filesystem::weakly_canonical(program ? "/proc/self/exe" : map->l_name, none).parent_path();
}

MTL::Device* new_cuda_device() {
  std::string reason;
  MTL::Device* device = softmetal::create_cuda_device(&reason);
  if (device == nullptr) throw_error(ErrorKind::declined, "no CUDA device: {}", reason);
  return device;
}

// The device's name has the version of CUDA; this is the kernel module's.
std::string driver_version(bool cuda) {
  std::ifstream file(cuda ? "/proc/driver/nvidia/version" : "");
  std::string line;
  std::getline(file, line);
  return line.empty() ? "unknown" : line;
}

void begin_step() { softmetal::begin_step(); }
void begin_encode() { softmetal::begin_encode(); }
void end_encode() { softmetal::end_encode(); }
void end_step() { softmetal::end_step(); }

void host_access(BufferView view, bool writes) { softmetal::host_access(view.buffer, view.offset, view.bytes, writes); }

void encode_call(MTL::CommandBuffer* commands, std::function<void(void* stream)> act) {
  softmetal::encode_call(commands, std::move(act));
}

void run_beside(MTL::BlitCommandEncoder* encoder) { softmetal::run_beside(encoder); }

void note_dispatch(const MTL::ComputePipelineState* pipeline, MTL::Size threads, size_t threadgroup_bytes) {
  softmetal::note_dispatch(pipeline, threads, threadgroup_bytes);
}

unsigned warpgroups(const MTL::Device* device) { return softmetal::warpgroups(device); }

std::string gemm_name(const MTL::Device* device) { return softmetal::gemm_name(device); }

void prepare_gemm(MTL::Device* device, const GemmProduct& product) {
  if (const std::string error = softmetal::prepare_gemm(device, product_of(product)); !error.empty())
    throw_error(ErrorKind::device, "{}; set SOFTMETAL_GEMM=none to do without it", error);
}

void encode_gemm(MTL::ComputeCommandEncoder* encoder, const GemmProduct& product, BufferView x, BufferView weights,
                 BufferView out) {
  softmetal::GemmProduct p = product_of(product);
  p.x = x.buffer;
  p.x_offset = x.offset;
  p.weights = weights.buffer;
  p.weights_offset = weights.offset;
  p.out = out.buffer;
  p.out_offset = out.offset;
  softmetal::encode_gemm(encoder, p);
}

}  // namespace ingot::metal::host

namespace ingot {

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

}  // namespace ingot
