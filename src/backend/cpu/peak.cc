#include "backend/cpu/peak.h"

#include <algorithm>
#include <chrono>

#include "core/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

// Each loop has kChains independent sums, enough to hide the latency of its instruction. An empty asm between two
// instructions makes their operand look new: products are neither merged nor taken out of the loop.
namespace ingot::cpu {
namespace {

constexpr int kChains = 12;

// A loop returns the operations of one round; `rounds` of them run.
using Loop = double (*)(int64_t rounds);

#define INGOT_PEAK_LOOP(V, ZERO, OPERAND, STEP)                                                                 \
  V sums[kChains];                                                                                              \
  for (V & sum : sums) sum = ZERO;                                                                              \
  V a = OPERAND;                                                                                                \
  for (int64_t round = 0; round < rounds; ++round) _Pragma("GCC unroll 16") for (int i = 0; i < kChains; ++i) { \
      INGOT_KEEP(a);                                                                                            \
      sums[i] = STEP;                                                                                           \
    }                                                                                                           \
  for (V & sum : sums) INGOT_KEEP(sum)

#if defined(__x86_64__)
#define INGOT_KEEP(v) asm volatile("" : "+x"(v))
#elif defined(__aarch64__)
#define INGOT_KEEP(v) asm volatile("" : "+w"(v))
#else
#define INGOT_KEEP(v) asm volatile("" : "+m"(v))
#endif

typedef float Portable __attribute__((vector_size(16)));
double portable_f32(int64_t rounds) {
  INGOT_PEAK_LOOP(Portable, Portable{}, (Portable{1, 1, 1, 1}), (a * a + sums[i]));
  return kChains * 2.0 * 4;
}

#if defined(__x86_64__)
#define INGOT_FOR(isa) __attribute__((target(isa)))

INGOT_FOR("avx2,fma") double avx2_f32(int64_t rounds) {
  INGOT_PEAK_LOOP(__m256, _mm256_setzero_ps(), _mm256_set1_ps(1), _mm256_fmadd_ps(a, a, sums[i]));
  return kChains * 2.0 * 8;
}
// As 4-bit codes allow: products of bytes are added up in 16 bits, several of them before they are widened.
INGOT_FOR("avx2") double avx2_int8(int64_t rounds) {
  INGOT_PEAK_LOOP(__m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1),
                  _mm256_add_epi16(_mm256_maddubs_epi16(a, a), sums[i]));
  return kChains * 2.0 * 32;
}
INGOT_FOR("avx512f") double avx512_f32(int64_t rounds) {
  INGOT_PEAK_LOOP(__m512, _mm512_setzero_ps(), _mm512_set1_ps(1), _mm512_fmadd_ps(a, a, sums[i]));
  return kChains * 2.0 * 16;
}
INGOT_FOR("avx512f,avx512bw") double avx512_int8(int64_t rounds) {
  INGOT_PEAK_LOOP(__m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1),
                  _mm512_add_epi16(_mm512_maddubs_epi16(a, a), sums[i]));
  return kChains * 2.0 * 64;
}
INGOT_FOR("avx512f,avx512vnni") double avx512_vnni_int8(int64_t rounds) {
  INGOT_PEAK_LOOP(__m512i, _mm512_setzero_si512(), _mm512_set1_epi32(0x01010101), _mm512_dpbusd_epi32(sums[i], a, a));
  return kChains * 2.0 * 64;
}
INGOT_FOR("avx512f,avx512bf16") double avx512_bf16(int64_t rounds) {
  INGOT_PEAK_LOOP(__m512, _mm512_setzero_ps(), _mm512_set1_ps(1), _mm512_dpbf16_ps(sums[i], (__m512bh)a, (__m512bh)a));
  return kChains * 2.0 * 32;
}
#endif

#if defined(__aarch64__)
double neon_f32(int64_t rounds) {
  INGOT_PEAK_LOOP(float32x4_t, vdupq_n_f32(0), vdupq_n_f32(1), vfmaq_f32(sums[i], a, a));
  return kChains * 2.0 * 4;
}
double neon_int8(int64_t rounds) {
  INGOT_PEAK_LOOP(int16x8_t, vdupq_n_s16(0), vdupq_n_s16(0x0101),
                  vmlal_s8(sums[i], vget_low_s8(vreinterpretq_s8_s16(a)), vget_low_s8(vreinterpretq_s8_s16(a))));
  return kChains * 2.0 * 8;
}
__attribute__((target("arch=armv8.2-a+dotprod"))) double neon_dotprod_int8(int64_t rounds) {
  INGOT_PEAK_LOOP(int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101),
                  vdotq_s32(sums[i], vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(a)));
  return kChains * 2.0 * 16;
}
__attribute__((target("arch=armv8.2-a+i8mm"))) double neon_i8mm_int8(int64_t rounds) {
  INGOT_PEAK_LOOP(int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101),
                  vmmlaq_s32(sums[i], vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(a)));
  return kChains * 2.0 * 32;
}
#endif

struct Loops {
  Loop int8 = nullptr, bf16 = nullptr, f32 = nullptr;
};

Loops loops_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2: return {avx2_int8, nullptr, avx2_f32};
    case Isa::avx512: return {avx512_int8, nullptr, avx512_f32};
    case Isa::avx512_vnni: return {avx512_vnni_int8, nullptr, avx512_f32};
    case Isa::avx512_bf16: return {avx512_vnni_int8, avx512_bf16, avx512_f32};
#endif
#if defined(__aarch64__)
    case Isa::neon: return {neon_int8, nullptr, neon_f32};
    case Isa::neon_dotprod: return {neon_dotprod_int8, nullptr, neon_f32};
    case Isa::neon_i8mm: return {neon_i8mm_int8, nullptr, neon_f32};
#endif
    default: return {nullptr, nullptr, portable_f32};
  }
}

// 1e9 operations a second of all threads; 0 for no loop.
double measure(Loop loop, ThreadPool& pool) {
  if (loop == nullptr) return 0;
  constexpr int kRuns = 5;
  constexpr int64_t kRounds = 500'000;  // a few milliseconds
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    double operations = 0;
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](Worker& worker) {
      const double one = loop(kRounds);
      if (worker.index() == 0) operations = one * kRounds * worker.count();
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, operations / seconds / 1e9);
  }
  return best;
}

}  // namespace

Roofs measure_peaks(Isa isa, int threads) {
  ThreadPool pool(threads);
  const Loops loops = loops_of(isa);
  return {.int8_gop_s = measure(loops.int8, pool),
          .bf16_gop_s = measure(loops.bf16, pool),
          .f32_gop_s = measure(loops.f32, pool)};
}

}  // namespace ingot::cpu
