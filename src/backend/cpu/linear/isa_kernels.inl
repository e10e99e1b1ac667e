// The kernels of one instruction set. A file that is compiled for it sets INGOT_ISA, its name, and INGOT_VEC, the header
// of its vectors, and includes this.
#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

namespace ingot::cpu {
namespace INGOT_ISA {
namespace {
#include INGOT_VEC

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace INGOT_ISA

#define INGOT_JOINED(a, b) a##b
#define INGOT_JOIN(a, b) INGOT_JOINED(a, b)
const KernelTable* INGOT_JOIN(INGOT_ISA, _kernels)() { return &INGOT_ISA::kTable; }

}  // namespace ingot::cpu
