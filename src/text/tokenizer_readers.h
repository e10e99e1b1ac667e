#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "text/tokenizer_data.h"

namespace ingot {

class GgufFile;

// GGUF's tokenizer.ggml.token_type.
namespace gguf_token {
enum Type : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
}

// Vocabularies without a list of merges are searched for them, at a cost of the square of a token's length.
inline constexpr size_t kLongestMergedToken = 1024;

// Each reader turns one format into TokenizerData. `source` names the file in errors. In the JSON ones the last of two
// equal keys counts, as in the reference: looking for such keys would cost more than all the rest of loading.
TokenizerData read_gguf_tokenizer(const GgufFile& file, const std::string& source);
TokenizerData read_hf_tokenizer(std::string_view tokenizer_json, const std::string& source);
TokenizerData read_tekken_tokenizer(std::string_view tekken_json, const std::string& source);

// A Hugging Face folder's tokenizer.json or tekken.json, with its templates and special tokens. Throws declined when
// there is neither.
TokenizerData read_folder_tokenizer(const std::filesystem::path& folder);

// Adds what tokenizer_config.json says: special token texts, chat templates.
void apply_tokenizer_config(TokenizerData& data, std::string_view config_json, const std::string& source);

// GGUF's tokenizer.ggml.pre: the steps behind the name, and what else it implies. False when the name is unknown.
bool apply_named_pre_tokenizer(TokenizerData& data, std::string_view name);

// Fills end_ids from eos and the well-known end-of-turn tokens of the vocabulary.
void find_end_tokens(TokenizerData& data);

}  // namespace ingot
