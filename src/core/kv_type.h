#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

// How the KV cache keeps keys and values. int8: each row (one position of one KV head, K or V) has a scale of its own,
// the largest magnitude of its elements / 127, and integers from -127 to 127 that the scale multiplies.
enum class KvType : int32_t { f32, f16, bf16, int8 };
inline constexpr int kNumKvTypes = 4;
inline constexpr std::string_view kKvTypeNames = "f16, bf16, int8 or f32";  // for messages

std::string_view kv_type_name(KvType type);
std::optional<KvType> parse_kv_type(std::string_view name);

constexpr size_t kv_element_bytes(KvType type) { return type == KvType::f32 ? 4 : type == KvType::int8 ? 1 : 2; }
constexpr size_t kv_scale_bytes(KvType type) { return type == KvType::int8 ? 4 : 0; }  // of one row

}  // namespace ingot
