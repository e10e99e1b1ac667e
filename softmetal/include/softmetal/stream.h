// Work of other libraries between the encoders of a command buffer, in the order of the stream that runs it. Apple's
// headers have nothing like it.
#pragma once

#include <functional>

namespace MTL {
class BlitCommandEncoder;
class CommandBuffer;
}  // namespace MTL

namespace softmetal {

// `act` puts its work on the stream, a cudaStream_t, once what comes before it is there; on CPU threads, where there is
// no such stream, it gets nullptr and does it then and there.
void encode_call(MTL::CommandBuffer* commands, std::function<void(void* stream)> act);

// The copies of this encoder may run beside what the command buffer has behind it, as fences allow it: Apple's GPUs do
// that by themselves. On an NVIDIA GPU they have a stream of their own, which begins behind what was encoded before and
// ends before the command buffer does. To be called before the first copy.
void run_beside(MTL::BlitCommandEncoder* encoder);

}  // namespace softmetal
