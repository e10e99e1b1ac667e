#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// The environment variables Ingot honours. Flags come first; a variable fills in where no flag was given.
struct Settings {
  bool use_engine = true;          // VLLM_APPLE_USE_ENGINE
  bool engine_prefill = true;      // VLLM_APPLE_ENGINE_PREFILL
  bool metal_attention = true;     // VLLM_METAL_ATTENTION
  bool strict_no_mps = false;      // VLLM_METAL_STRICT_NO_MPS
  bool profile = false;            // VLLM_METAL_PROFILE
  bool capture_next_step = false;  // VLLM_METAL_CAPTURE_NEXT_STEP
  int64_t scratch_pool_mb = 512;   // VLLM_METAL_SCRATCH_POOL_MB: most scratch memory a step may be planned for
  int64_t max_batch_size = 0;      // VLLM_METAL_MAX_BATCH_SIZE: most tokens in a step; 0: the device's default
  int64_t topk_logits = 0;         // VLLM_METAL_TOPK_LOGITS: 0: off
  std::string resources;           // VLLM_METAL_PATH_RESOURCES
  std::string device;              // INGOT_DEVICE; empty: auto

  // Reads them all. A value that cannot be meant is an Error(bad_call) that names the variable.
  static Settings from_environment();
};

// One line of the settings table, as `ingot doctor` prints it.
struct SettingInfo {
  std::string_view name;
  std::string_view default_value;
  std::string_view meaning;
};
const std::vector<SettingInfo>& setting_table();

// Where files are kept that can be made again: INGOT_CACHE, else `ingot` in XDG_CACHE_HOME or ~/.cache.
std::string cache_folder();

// The variable's value when it is set (an empty value counts as unset).
std::optional<std::string> environment(std::string_view name);

}  // namespace ingot
