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

}  // namespace ingot
