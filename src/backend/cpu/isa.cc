#include "backend/cpu/isa.h"

#include <string>
#include <vector>

#include "backend/cpu/linear/kernels.h"
#include "core/error.h"

namespace ingot::cpu {
namespace {

constexpr std::string_view kNames[kNumIsas] = {"portable",    "avx2", "avx512",      "avx512_vnni",
                                               "avx512_bf16", "neon", "neon_dotprod"};

[[noreturn]] void throw_unavailable(std::string_view name) {
  std::string list;
  for (Isa isa : available_isas()) {
    if (!list.empty()) list += ", ";
    list += isa_name(isa);
  }
  throw_error(ErrorKind::bad_call, "--isa {}: not an instruction set that runs here; choose one of: {}", name, list);
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> parse_isa(std::string_view name) {
  for (int i = 0; i < kNumIsas; ++i)
    if (kNames[i] == name) return static_cast<Isa>(i);
  return std::nullopt;
}

std::span<const Isa> available_isas() {
  static const std::vector<Isa> list = {Isa::portable};
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
    default: return nullptr;
  }
}

}  // namespace ingot::cpu
