#include "backend/metal/pipelines.h"

#include <algorithm>

#include "core/error.h"

namespace ingot::metal {

PipelineKey::PipelineKey(std::string_view name, std::span<const Constant> values) : kernel(name), count(values.size()) {
  if (count > kMaxConstants)
    throw_error(ErrorKind::internal, "gpu: kernel {} with {} function constants, room for {}", name, count,
                kMaxConstants);
  std::copy(values.begin(), values.end(), constants.begin());
}

size_t PipelineCache::Hash::operator()(const PipelineKey& key) const {
  // FNV-1a over the name, then over the constants as words.
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x100000001b3u; };
  for (const char c : key.kernel) mix(static_cast<unsigned char>(c));
  for (const Constant& c : std::span(key.constants).first(key.count)) mix(uint64_t{c.index} << 32 | c.value);
  return h;
}

PipelineCache::PipelineCache(NS::SharedPtr<MTL::Device> device, NS::SharedPtr<MTL::Library> library,
                             DeviceCounters& counters)
    : device_(std::move(device)), library_(std::move(library)), counters_(counters) {}

const Pipeline& PipelineCache::get(const PipelineKey& key) {
  if (const auto found = pipelines_.find(key); found != pipelines_.end()) return *found->second;
  std::unique_ptr<Pipeline> made = compile(key);
  PipelineKey kept = key;
  kept.kernel = made->kernel;
  return *pipelines_.emplace(kept, std::move(made)).first->second;
}

std::unique_ptr<Pipeline> PipelineCache::compile(const PipelineKey& key) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  ++counters_.compiles;
  const auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  for (const Constant& c : std::span(key.constants).first(key.count)) {
    const bool flag = c.value != 0;
    if (c.boolean)
      values->setConstantValue(&flag, MTL::DataTypeBool, NS::UInteger{c.index});
    else
      values->setConstantValue(&c.value, MTL::DataTypeUInt, NS::UInteger{c.index});
  }
  auto pipeline = std::make_unique<Pipeline>();
  pipeline->kernel = key.kernel;

  NS::Error* error = nullptr;
  const auto reason = [&error] { return error != nullptr ? error->localizedDescription()->utf8String() : "no reason"; };
  const auto function = NS::TransferPtr(library_->newFunction(
      NS::String::string(pipeline->kernel.c_str(), NS::UTF8StringEncoding), values.get(), &error));
  if (!function) throw_error(ErrorKind::device, "gpu: kernel {} cannot be made: {}", key.kernel, reason());
  pipeline->state = NS::TransferPtr(device_->newComputePipelineState(function.get(), &error));
  if (!pipeline->state) throw_error(ErrorKind::device, "gpu: kernel {} cannot be compiled: {}", key.kernel, reason());
  pipeline->max_threads = static_cast<uint32_t>(pipeline->state->maxTotalThreadsPerThreadgroup());
  return pipeline;
}

}  // namespace ingot::metal
