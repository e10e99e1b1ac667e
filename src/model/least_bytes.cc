#include "model/least_bytes.h"

namespace ingot {

uint64_t least_activation_bytes(const ModelConfig& c, DType activation, int64_t rows) {
  const auto wide = static_cast<int64_t>(dtype_bytes(DType::f32, 1));  // residual stream, rotations, logits
  const auto narrow = static_cast<int64_t>(dtype_bytes(activation, 1));
  const int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  const int64_t norm = wide * c.hidden, add = wide * c.hidden;
  const int64_t attention =
      narrow * (c.hidden + q + 2 * kv + q) + wide * c.rope_dims;  // qkv in, attention in, output in
  const int64_t mlp = narrow * (c.hidden + c.ffn);
  const int64_t layer = norm + attention + add + norm + mlp + add;
  const int64_t head = norm + narrow * c.hidden + wide * c.vocab;
  return static_cast<uint64_t>(rows * (c.layers * layer + head));
}

}  // namespace ingot
