#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

// Which instruction sets the CPU kernels may use. Decided at run time; one build carries them all.
namespace ingot::cpu {

// In each processor family a later one is better. AMX is never used.
enum class Isa : uint8_t {
  portable,      // plain C++
  avx2,          // AVX2, FMA, F16C
  avx512,        // AVX-512 F, BW, DQ, VL
  avx512_vnni,   // + VNNI
  avx512_bf16,   // + VNNI and BF16
  neon,          // Armv8.0
  neon_dotprod,  // + dot product (Armv8.2 and up)
  neon_i8mm,     // + products of 8-bit matrices (Armv8.6 and up)
};
inline constexpr int kNumIsas = 8;

std::string_view isa_name(Isa isa);  // as the enumerator is spelled
std::optional<Isa> parse_isa(std::string_view name);

// Those that this build has and that really run here, worst first. `portable` is always among them. A feature counts
// when the processor lists it, the system saves its registers, and one of its instructions was executed without a
// fault: some virtual machines list features that fault.
std::span<const Isa> available_isas();
inline Isa best_isa() { return available_isas().back(); }

// The ISA of that name; the best for an empty name. Throws bad_call naming those that run here.
Isa choose_isa(std::string_view name);

// Throws bad_call naming those that run here, unless `isa` is one of them.
void require_isa(Isa isa);

}  // namespace ingot::cpu
