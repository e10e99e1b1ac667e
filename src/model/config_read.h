#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "model/config.h"

namespace ingot {

class Checkpoint;
class GgufFile;
class JsonView;

// Each throws bad_file naming the key when a value is impossible, declined when it is possible but not supported.
ModelConfig read_config(const GgufFile& file);
// config.json and, where present, generation_config.json; `weight_format` is what config.json states, empty if nothing.
ModelConfig read_hf_config(const std::filesystem::path& dir);
// The same over the files' contents, for tests and fuzzers; an empty `generation_config` means there is none.
ModelConfig read_hf_config_text(std::string_view config, std::string_view generation_config);

// How config.json says that the weights are packed into few bits. Throws declined for a way that we do not read.
PackedFormat read_packed_format(const JsonView& json);

// The format that most weights (elements of matrices) have: "q4_1".
std::string dominant_format(const Checkpoint& checkpoint);

// What every reader ends with: do the values make a model? The keys are what errors call the fields.
struct ConfigKeys {
  std::string where;  // the file
  std::string hidden, layers, heads, kv_heads, head_size, ffn, vocab, max_position, norm_eps, sliding_window;
  std::string rope_theta, rope_dims, rope_factor, rope_original;
  std::string bos, eos;
  std::string experts, experts_per_token, expert_ffn;
};
void check_layers(const ModelConfig& config, const ConfigKeys& keys);  // their number alone
void check_config(const ModelConfig& config, const ConfigKeys& keys);

}  // namespace ingot
