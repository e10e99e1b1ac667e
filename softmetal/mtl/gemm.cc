#include "softmetal/gemm.h"
#include "softmetal/cuda.h"

#include "mtl/state.h"

namespace softmetal {
namespace {

GemmShape shape_of(const GemmProduct& p) {
  return {.type = static_cast<GemmType>(p.type),
          .out = static_cast<GemmType>(p.out_type),
          .accumulate = p.accumulate,
          .outputs = p.outputs,
          .cols = p.cols,
          .stride = p.stride,
          .out_stride = p.out_stride};
}

void check_range(const char* what, const MTL::Buffer* buffer, size_t offset, size_t bytes) {
  if (!buffer) violate(std::string("encode_gemm(): no ") + what);
  if (offset % 16) violate(std::string("encode_gemm(): ") + what + " does not begin at a multiple of 16 bytes");
  if (offset > buffer->length() || bytes > buffer->length() - offset)
    violate(std::string("encode_gemm(): ") + what + " has " + std::to_string(bytes) + " bytes from offset " +
            std::to_string(offset) + " of the buffer" + quoted_label(buffer) + ", which has " +
            std::to_string(buffer->length()));
}

}  // namespace

unsigned warpgroups(const MTL::Device* device) { return Access::state(device).executor->warpgroups(); }
std::string gemm_name(const MTL::Device* device) { return Access::state(device).executor->gemm_name(); }

std::string prepare_gemm(MTL::Device* device, const GemmProduct& product) {
  audit::compilation("prepare_gemm()");
  return Access::state(device).executor->prepare_gemm(shape_of(product));
}

void encode_gemm(MTL::ComputeCommandEncoder* encoder, const GemmProduct& p) {
  CommandList& list = Access::commands(encoder, "encode_gemm()");
  if (p.rows == 0 || p.outputs == 0) return;
  if (p.type == GemmElement::f32) violate("encode_gemm(): x and weights must be f16 or bf16");
  const size_t out_bytes = p.out_type == GemmElement::f32 ? 4 : 2;
  check_range("x", p.x, p.x_offset, ((p.rows - 1) * p.stride + p.cols) * 2);
  check_range("weights", p.weights, p.weights_offset, ((p.outputs - 1) * p.stride + p.cols) * 2);
  check_range("out", p.out, p.out_offset, ((p.rows - 1) * p.out_stride + p.outputs) * out_bytes);
  GemmCommand command;
  command.shape = shape_of(p);
  command.rows = p.rows;
  command.x = Access::memory(p.x).get();
  command.weights = Access::memory(p.weights).get();
  command.out = Access::memory(p.out).get();
  command.x_offset = p.x_offset;
  command.weights_offset = p.weights_offset;
  command.out_offset = p.out_offset;
  for (const MTL::Buffer* buffer : {p.x, p.weights, p.out})
    if (Access::retained(Access::command_buffer(encoder))) list.keep.push_back(Access::memory(buffer));
  list.commands.emplace_back(command);
  audit::dispatch();
}

}  // namespace softmetal
