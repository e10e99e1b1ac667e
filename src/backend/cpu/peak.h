#pragma once

#include "backend/cpu/isa.h"
#include "backend/profile.h"

namespace ingot::cpu {

// How fast `threads` threads multiply and add together with the instructions of an ISA, from registers alone: the most
// that any kernel could reach. The best of a few short runs of each; about a tenth of a second. read_gb_s is left 0.
Roofs measure_peaks(Isa isa, int threads);

}  // namespace ingot::cpu
