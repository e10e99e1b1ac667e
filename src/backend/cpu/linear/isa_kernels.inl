// The kernels of one instruction set. A file that is compiled for it includes the header of its vectors (simd/), sets
// INGOT_ISA, its name, INGOT_SIMD, the namespace of those vectors, and INGOT_MACHINE, the header of what products need
// beside, and includes this.
#include "backend/cpu/linear/kernels.h"

namespace ingot::cpu {
namespace INGOT_ISA {
namespace {
using namespace INGOT_SIMD;
#include INGOT_MACHINE

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace INGOT_ISA

#define INGOT_JOINED(a, b) a##b
#define INGOT_JOIN(a, b) INGOT_JOINED(a, b)
const KernelTable* INGOT_JOIN(INGOT_ISA, _kernels)() { return &INGOT_ISA::kTable; }

}  // namespace ingot::cpu
