#pragma once

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/kernels.h"

namespace ingot::cpu {

// The kernels to run on `isa`. On Arm the portable ones are NEON: four lanes are all it has.
const Kernels& select_kernels(Isa isa);

}  // namespace ingot::cpu
