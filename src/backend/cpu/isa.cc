#include "backend/cpu/isa.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/linear/kernels.h"
#include "core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace ingot::cpu {
namespace {

constexpr std::string_view kNames[kNumIsas] = {"portable",    "avx2", "avx512",       "avx512_vnni",
                                               "avx512_bf16", "neon", "neon_dotprod", "neon_i8mm"};

[[noreturn]] void throw_unavailable(std::string_view name) {
  std::string list;
  for (Isa isa : available_isas()) {
    if (!list.empty()) list += ", ";
    list += isa_name(isa);
  }
  throw_error(ErrorKind::bad_call, "--isa {}: not an instruction set that runs here; choose one of: {}", name, list);
}

#if defined(__x86_64__)
// Whether the processor lists the ISA and the system saves its registers.
bool is_listed(Isa isa) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  constexpr unsigned kFma = 1u << 12, kOsxsave = 1u << 27, kF16c = 1u << 29;
  if ((c & (kFma | kOsxsave | kF16c)) != (kFma | kOsxsave | kF16c)) return false;
  unsigned saved = 0, saved_high = 0;
  asm("xgetbv" : "=a"(saved), "=d"(saved_high) : "c"(0));
  if ((saved & 0x06) != 0x06) return false;  // xmm and ymm
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if (!(b & 1u << 5)) return false;  // AVX2
  if (isa == Isa::avx2) return true;
  if ((saved & 0xe6) != 0xe6) return false;                                    // also opmask and zmm
  constexpr unsigned kFoundation = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
  if ((b & kFoundation) != kFoundation) return false;
  if (isa == Isa::avx512) return true;
  if (!(c & 1u << 11)) return false;  // VNNI
  if (isa == Isa::avx512_vnni) return true;
  unsigned a1 = 0;
  if (!__get_cpuid_count(7, 1, &a1, &b, &c, &d)) return false;
  return isa == Isa::avx512_bf16 && (a1 & 1u << 5);
}
#elif defined(__aarch64__)
bool is_listed(Isa isa) {
  if (isa == Isa::neon) return true;
  if (isa != Isa::neon_dotprod && isa != Isa::neon_i8mm) return false;
#if defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20, kMatrices = 1ul << 13;
  if (!(getauxval(AT_HWCAP) & kDotProduct)) return false;
  return isa == Isa::neon_dotprod || (getauxval(AT_HWCAP2) & kMatrices);
#elif defined(__APPLE__)
  const auto has = [](const char* feature) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  return has("hw.optional.arm.FEAT_DotProd") && (isa == Isa::neon_dotprod || has("hw.optional.arm.FEAT_I8MM"));
#else
  return false;
#endif
}
#else
bool is_listed(Isa) { return false; }
#endif

#if defined(INGOT_HAS_AVX512)
// Put together here: this file is compiled for every processor.
const KernelTable* avx512_with_bf16() {
  static const KernelTable table = [] {
    KernelTable all = *avx512_vnni_kernels();
    const KernelTable& bf16 = *avx512_bf16_kernels();
    all.round_to_bf16 = bf16.round_to_bf16;
    std::memcpy(all.tile[static_cast<int>(DType::bf16)], bf16.tile[static_cast<int>(DType::bf16)], sizeof all.tile[0]);
    return all;
  }();
  return &table;
}
#endif

thread_local sigjmp_buf probe_escape;
void leave_probe(int) { siglongjmp(probe_escape, 1); }

// Runs kernels of each kind on zeros, of one row and of two.
void exercise(const KernelTable& kernels) {
  constexpr int kRows = 2;
  alignas(64) static uint8_t weights[16 * 1024];
  alignas(64) static uint8_t act[activation_bytes(kRows, kSuper / kBlock, true)];
  alignas(64) static float in[kRows * kSuper], out[kRows * kPanelRows];
  for (int rows = 1; rows <= kRows; ++rows) {
    if (kernels.round_to_bf16 != nullptr) kernels.round_to_bf16(in, kSuper, rows, kSuper, 0, kSuper / kBlock, act);
    kernels.quantize(in, kSuper, rows, kSuper, 0, kSuper / kBlock, true, act);
    for (int type = 0; type < kNumDTypes; ++type) {
      const int64_t end = kSuper;
      const TileArgs args = {weights, sizeof weights, 1, 1, &end, act, true, in, kSuper, out, nullptr};
      kernels.tile[type][rows - 1](args);
    }
  }
  for (auto store : kernels.store) {
    const StoreArgs args = {in, in, nullptr, nullptr, 1, kPanelRows, out, kPanelRows};
    store(args);
  }
}

// Whether the kernels run without an illegal instruction.
bool survives(const KernelTable& kernels) {
  struct sigaction action = {}, before = {};
  action.sa_handler = leave_probe;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGILL, &action, &before) != 0) return false;
  bool ran = false;
  if (sigsetjmp(probe_escape, 1) == 0) {
    exercise(kernels);
    ran = true;
  }
  sigaction(SIGILL, &before, nullptr);
  return ran;
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> parse_isa(std::string_view name) {
  for (int i = 0; i < kNumIsas; ++i)
    if (kNames[i] == name) return static_cast<Isa>(i);
  return std::nullopt;
}

std::span<const Isa> available_isas() {
  static const std::vector<Isa> list = [] {
    std::vector<Isa> found = {Isa::portable};
    for (int i = 1; i < kNumIsas; ++i) {
      const Isa isa = static_cast<Isa>(i);
      const KernelTable* kernels = kernels_for(isa);
      if (kernels != nullptr && is_listed(isa) && survives(*kernels)) found.push_back(isa);
    }
    return found;
  }();
  return list;
}

Isa choose_isa(std::string_view name) {
  if (name.empty()) return best_isa();
  const std::optional<Isa> isa = parse_isa(name);
  if (!isa) throw_unavailable(name);
  require_isa(*isa);
  return *isa;
}

void require_isa(Isa isa) {
  for (Isa candidate : available_isas())
    if (candidate == isa) return;
  throw_unavailable(isa_name(isa));
}

const KernelTable* kernels_for(Isa isa) {
  switch (isa) {
    case Isa::portable: return portable_kernels();
#if defined(INGOT_HAS_AVX2)
    case Isa::avx2: return avx2_kernels();
#endif
#if defined(INGOT_HAS_AVX512)
    case Isa::avx512: return avx512_kernels();
    case Isa::avx512_vnni: return avx512_vnni_kernels();
    case Isa::avx512_bf16: return avx512_with_bf16();
#endif
#if defined(INGOT_HAS_NEON)
    case Isa::neon: return neon_kernels();
    case Isa::neon_i8mm: return neon_i8mm_kernels();
#endif
#if defined(INGOT_HAS_NEON_DOTPROD)
    case Isa::neon_dotprod: return neon_dotprod_kernels();
#endif
    default: return nullptr;
  }
}

}  // namespace ingot::cpu
