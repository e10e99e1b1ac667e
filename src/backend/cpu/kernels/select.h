#pragma once

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/kernels.h"

namespace ingot::cpu {

// The kernels to run on `isa`.
const Kernels& select_kernels(Isa isa);

}  // namespace ingot::cpu
