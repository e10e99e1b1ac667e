#include "core/kv_type.h"

namespace ingot {

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::f32: return "f32";
    case KvType::f16: return "f16";
    case KvType::bf16: return "bf16";
    case KvType::int8: return "int8";
  }
  return "?";
}

std::optional<KvType> parse_kv_type(std::string_view name) {
  for (int i = 0; i < kNumKvTypes; ++i)
    if (kv_type_name(static_cast<KvType>(i)) == name) return static_cast<KvType>(i);
  return std::nullopt;
}

}  // namespace ingot
