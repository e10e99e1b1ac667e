#pragma once

namespace ingot {

// Stands for NVIDIA GPUs where kernels' variants are chosen by family.
inline constexpr int kNvidiaFamily = 100;

}  // namespace ingot
