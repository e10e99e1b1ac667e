#include "backend/metal/pipelines.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace ingot::metal {

Constant Constant::f(uint16_t index, float value) { return {index, Type::f32, std::bit_cast<uint32_t>(value)}; }

PipelineKey::PipelineKey(std::string_view name, std::initializer_list<Constant> values)
    : kernel(name), count(values.size()) {
  if (count > kMaxConstants)
    throw_error(ErrorKind::internal, "gpu: kernel {} with {} function constants, room for {}", name, count,
                kMaxConstants);
  std::copy(values.begin(), values.end(), constants.begin());
}

uint64_t PipelineKey::hash() const {
  // FNV-1a over the name, then over the constants as words.
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x100000001b3u; };
  for (const char c : kernel) mix(static_cast<unsigned char>(c));
  for (size_t i = 0; i < count; ++i)
    mix(uint64_t{constants[i].index} << 40 | uint64_t{static_cast<uint8_t>(constants[i].type)} << 32 |
        constants[i].bits);
  return h;
}

bool Pipeline::matches(const PipelineKey& key) const {
  return count == key.count && kernel == key.kernel &&
         std::equal(constants.begin(), constants.begin() + static_cast<int64_t>(count), key.constants.begin());
}

PipelineCache::PipelineCache(NS::SharedPtr<MTL::Device> device, NS::SharedPtr<MTL::Library> library)
    : device_(std::move(device)), library_(std::move(library)) {}

const Pipeline* PipelineCache::find(const PipelineKey& key) const {
  const auto [begin, end] = pipelines_.equal_range(key.hash());
  for (auto it = begin; it != end; ++it)
    if (it->second->matches(key)) return it->second.get();
  return nullptr;
}

const Pipeline& PipelineCache::compile(const PipelineKey& key) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  ++compiles_;
  const auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  for (size_t i = 0; i < key.count; ++i) {
    const Constant& c = key.constants[i];
    const bool flag = c.bits != 0;
    switch (c.type) {
      case Constant::Type::u32: values->setConstantValue(&c.bits, MTL::DataTypeUInt, NS::UInteger{c.index}); break;
      case Constant::Type::f32: values->setConstantValue(&c.bits, MTL::DataTypeFloat, NS::UInteger{c.index}); break;
      case Constant::Type::boolean: values->setConstantValue(&flag, MTL::DataTypeBool, NS::UInteger{c.index}); break;
    }
  }
  auto pipeline = std::make_unique<Pipeline>();
  pipeline->kernel = key.kernel;
  pipeline->constants = key.constants;
  pipeline->count = key.count;

  NS::Error* error = nullptr;
  const auto reason = [&error] { return error != nullptr ? error->localizedDescription()->utf8String() : "no reason"; };
  const auto function = NS::TransferPtr(library_->newFunction(
      NS::String::string(pipeline->kernel.c_str(), NS::UTF8StringEncoding), values.get(), &error));
  if (!function) throw_error(ErrorKind::device, "gpu: kernel {} cannot be made: {}", key.kernel, reason());
  pipeline->state = NS::TransferPtr(device_->newComputePipelineState(function.get(), &error));
  if (!pipeline->state) throw_error(ErrorKind::device, "gpu: kernel {} cannot be compiled: {}", key.kernel, reason());
  pipeline->max_threads = static_cast<uint32_t>(pipeline->state->maxTotalThreadsPerThreadgroup());
  return *pipelines_.emplace(key.hash(), std::move(pipeline))->second;
}

}  // namespace ingot::metal
