#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/config.h"

// A model family is one file in this folder, NAME.cc, which defines `const Family families::NAME`. The build lists the
// files; nothing else knows a family by its name.
namespace ingot {

class Checkpoint;
class GgufFile;
class GgufValues;
class JsonView;

// A value of ModelConfig that checkpoints state under a key of their own. Numbers are above 0 (whole ones from 1) and
// at most `most`. One that the family has no default for must be there, unless another value stands in for it.
struct Setting {
  std::variant<int64_t ModelConfig::*, float ModelConfig::*, bool ModelConfig::*> member;
  const char* hf = nullptr;    // in config.json
  const char* gguf = nullptr;  // in GGUF's metadata, behind "llama."; nullptr: its tensors tell
  double most = 0;
  int64_t ModelConfig::* stand_in = nullptr;
};

inline constexpr Setting kLayers = {&ModelConfig::layers, "num_hidden_layers", "block_count", 1 << 12};
inline constexpr Setting kHidden = {&ModelConfig::hidden, "hidden_size", "embedding_length", 1 << 20};
inline constexpr Setting kHeads = {&ModelConfig::heads, "num_attention_heads", "attention.head_count", 1 << 14};
inline constexpr Setting kKvHeads = {&ModelConfig::kv_heads, "num_key_value_heads", "attention.head_count_kv", 1 << 14,
                                     &ModelConfig::heads};
inline constexpr Setting kHeadSize = {&ModelConfig::head_size, "head_dim", "attention.key_length", 1 << 12};

// What only some families have.
inline constexpr Setting kExpertsPerToken = {&ModelConfig::experts_per_token, "num_experts_per_tok",
                                             "expert_used_count", 1 << 12};
inline constexpr Setting kOutputBias = {&ModelConfig::output_bias, "attention_bias"};  // before the next: that one wins
inline constexpr Setting kAttentionBias = {&ModelConfig::attention_bias, "attention_bias"};
inline constexpr Setting kMlpBias = {&ModelConfig::mlp_bias, "mlp_bias"};

// The metadata of a GGUF file: "embedding_length" is llama.embedding_length. Absent keys are nothing where they are
// looked for, an error where they are needed.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string architecture) : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  const GgufFile& file() const { return file_; }
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<int64_t> find_int(std::string_view key) const;
  std::optional<double> find_double(std::string_view key) const;
  int64_t need_int(std::string_view key) const { return *find_int(needed(key)); }
  double need_double(std::string_view key) const { return *find_double(needed(key)); }

 private:
  std::string_view needed(std::string_view key) const;

  const GgufFile& file_;
  std::string prefix_;
};

using Names = std::vector<std::pair<std::string_view, const char*>>;  // what most call it, what this family calls it

struct Family {
  const char* hf;          // in config.json's architectures
  const char* model_type;  // in config.json
  const char* gguf;        // general.architecture, and ModelConfig::architecture
  bool reads_gguf = true;  // false: another family of that architecture does, or none
  bool head = false;       // its checkpoints are no models, but guess for one

  ModelConfig base;               // what all its models have in common, and what config.json may leave out
  std::vector<Setting> settings;  // beside those that all families have
  Names keys;                     // of settings
  const char* activation_key = "hidden_act";
  Names tensors;             // of safetensors, by GGUF's names; most have Llama's (layout.cc)
  bool interleaved = false;  // GGUF files hold the rotary halves of q and k interleaved, see MatrixPart

  // All else. Layers are there, full and with positions, when a configuration is read; what most configurations have is
  // in the JSON or the metadata when it is written.
  void (*read_hf)(const JsonView& json, ModelConfig& config) = nullptr;
  void (*read_gguf)(const GgufKeys& keys, ModelConfig& config) = nullptr;
  void (*write_hf)(const ModelConfig& config, nlohmann::ordered_json& json) = nullptr;
  void (*write_gguf)(const ModelConfig& config, GgufValues& values) = nullptr;
  // Safetensors that do not hold [out, in] matrices under one set of names, as if they did.
  std::shared_ptr<Checkpoint> (*adapt)(std::shared_ptr<const Checkpoint> stored, int threads) = nullptr;
};

// Whether a config.json is that of an EAGLE-3 head, which has a family of its own by what it has beside its names.
bool is_eagle3(const JsonView& json);

namespace families {
#define INGOT_FAMILY(name) extern const Family name;
#include "families_list.inc"  // made by the build
#undef INGOT_FAMILY
}  // namespace families

// The family whose `kind` of name (&Family::hf, ...) this is. Throws declined with the names that there are; `where`
// says who asks.
const Family& find_family(const char* Family::* kind, std::string_view name, const std::string& where);
const Family& family_of(const ModelConfig& config);
const char* own_name(const Names& names, const char* common);

// The window of each layer: layer_types where the config has them, else `slides(layer)`.
void read_windows(const JsonView& json, int64_t window, const std::function<bool(int64_t)>& slides,
                  ModelConfig& config);
// sliding_window where use_sliding_window turns it on, else 0.
int64_t switched_window(const JsonView& json);
// Qwen's: the layers from max_window_layers on.
void read_late_windows(const JsonView& json, ModelConfig& config);

}  // namespace ingot
