#include "backend/cpu/kernels/select.h"

namespace ingot::cpu {

const Kernels& select_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::avx2: return avx2::kernels();
#if defined(INGOT_HAS_AVX512)
    case Isa::avx512:
    case Isa::avx512_vnni:
    case Isa::avx512_bf16: return avx512::kernels();
#endif
    default: break;
  }
#elif defined(__aarch64__)
  if (isa != Isa::portable) return neon::kernels();
#else
  (void)isa;
#endif
  return portable::kernels();
}

}  // namespace ingot::cpu
