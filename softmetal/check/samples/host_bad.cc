// The software device would take this; Apple's headers must not: MTLSTR is for literals, and a label is an NS::String.
#include <Metal/Metal.hpp>

void sample(MTL::Buffer* buffer, const char* name) { buffer->setLabel(MTLSTR(name)); }
