// Work of other libraries between the encoders of a command buffer, in the order of the stream that runs it. Apple's
// headers have nothing like it.
#pragma once

#include <functional>

namespace MTL {
class CommandBuffer;
}

namespace softmetal {

// `act` puts its work on the stream, a cudaStream_t, once what comes before it is there; on CPU threads, where there is
// no such stream, it gets nullptr and does it then and there.
void encode_call(MTL::CommandBuffer* commands, std::function<void(void* stream)> act);

}  // namespace softmetal
