#pragma once

namespace ingot {

enum class NormKind { rms, layer };
enum class ActivationKind { silu, gelu_tanh, gelu };

}  // namespace ingot
