#include "harness.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace softmetal_test {

Gpu::Gpu(softmetal::Mode mode, uint64_t seed) : pool(NS::TransferPtr(NS::AutoreleasePool::alloc()->init())) {
  softmetal::Options o = softmetal::options_from_environment();
  o.mode = mode;
  if (seed) o.seed = seed;
  softmetal::set_options(o);
  device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  queue = NS::TransferPtr(device->newCommandQueue());
}
Gpu::~Gpu() = default;

void Gpu::compile(const std::string& body, std::initializer_list<std::pair<const char*, const char*>> macros) {
  const std::string source = std::string(kPrologue) + "#line 1 \"test.metal\"\n" + body;
  auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
  std::vector<const NS::Object*> keys, values;
  for (auto& [key, value] : macros) {
    keys.push_back(NS::String::string(key, NS::UTF8StringEncoding));
    values.push_back(NS::String::string(value, NS::UTF8StringEncoding));
  }
  options->setPreprocessorMacros(NS::Dictionary::dictionary(values.data(), keys.data(), keys.size()));
  NS::Error* error = nullptr;
  library = NS::TransferPtr(
      device->newLibrary(NS::String::string(source.c_str(), NS::UTF8StringEncoding), options.get(), &error));
  if (!library) throw std::runtime_error(error->localizedDescription()->utf8String());
}

MTL::ComputePipelineState* Gpu::pipeline(const std::string& name, const std::vector<Constant>& constants) {
  auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  for (const Constant& c : constants) values->setConstantValue(&c.bits, c.type, c.index);
  NS::Error* error = nullptr;
  auto function = NS::TransferPtr(
      library->newFunction(NS::String::string(name.c_str(), NS::UTF8StringEncoding), values.get(), &error));
  if (!function) throw std::runtime_error(error->localizedDescription()->utf8String());
  auto state = NS::TransferPtr(device->newComputePipelineState(function.get(), &error));
  if (!state) throw std::runtime_error(error->localizedDescription()->utf8String());
  pipelines_.push_back(state);
  return state.get();
}

std::string Gpu::run(const std::string& name, const Run& r, const std::vector<Constant>& constants) {
  MTL::ComputePipelineState* state = pipeline(name, constants);
  MTL::CommandBuffer* command_buffer = queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = command_buffer->computeCommandEncoder();
  encoder->setComputePipelineState(state);
  for (size_t i = 0; i < r.buffers.size(); ++i) encoder->setBuffer(r.buffers[i], 0, i);
  if (r.threadgroup_bytes) encoder->setThreadgroupMemoryLength(r.threadgroup_bytes, 0);
  if (r.by_threads) {
    encoder->dispatchThreads(r.groups, r.threads);
  } else {
    encoder->dispatchThreadgroups(r.groups, r.threads);
  }
  encoder->endEncoding();
  return finish(command_buffer);
}

std::string Gpu::finish(MTL::CommandBuffer* command_buffer) {
  command_buffer->commit();
  command_buffer->waitUntilCompleted();
  if (command_buffer->status() == MTL::CommandBufferStatusCompleted) return "";
  return command_buffer->error()->localizedDescription()->utf8String();
}

float half_to_float(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent     ? std::ldexp(1.0f + static_cast<float>(fraction) / 1024, exponent - 15)
                               : std::ldexp(static_cast<float>(fraction), -24);
  return h >> 15 ? -value : value;
}
uint16_t float_to_half(float f) {
  // The nearest of the finite halves, ties to the even one.
  const uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  const float a = std::fabs(f);
  if (std::isnan(f)) return sign | 0x7e00;
  if (a == 0) return sign;
  if (a >= 65520.0f) return sign | 0x7c00;
  int exponent;
  std::frexp(a, &exponent);
  const int scale = std::max(exponent - 11, -24);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(a, -scale)));
  return static_cast<uint16_t>(sign | (steps + (static_cast<uint32_t>(scale + 24) << 10)));
}
float bfloat_to_float(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
uint16_t float_to_bfloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace softmetal_test
