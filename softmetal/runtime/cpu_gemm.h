// What stands in for a library's product of matrices on the software device, for checking what goes with it.
#pragma once

#include "runtime/executor.h"

namespace softmetal {

// out [rows, outputs] = (out +) x weights^T; see GemmCommand.
void multiply_plainly(const GemmShape& shape, uint64_t rows, const char* x, const char* weights, char* out);

}  // namespace softmetal
