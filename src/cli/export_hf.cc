#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/common.h"
#include "cli/options.h"
#include "core/error.h"
#include "formats/gguf.h"
#include "model/open_model.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_readers.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ExportArgs {
  std::string file;
  std::string folder;
};

// GGUF's name of an architecture and Hugging Face's two.
struct Family {
  std::string_view gguf;
  const char *architecture, *model_type;
};
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", "llama"},       {"qwen2", "Qwen2ForCausalLM", "qwen2"},
    {"qwen3", "Qwen3ForCausalLM", "qwen3"},       {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3"}, {"gemma3", "Gemma3ForCausalLM", "gemma3_text"},
    {"gpt2", "GPT2LMHeadModel", "gpt2"},
};
constexpr Family kMistral = {"llama", "MistralForCausalLM", "mistral"};  // GGUF calls it llama

Family family_of(const ModelConfig& c, const std::string& file) {
  if (c.architecture == "llama" && c.sliding_window > 0) return kMistral;
  for (const Family& family : kFamilies)
    if (family.gguf == c.architecture) return family;
  throw_error(ErrorKind::declined, "{}: no Hugging Face config is known for the architecture {}", file, c.architecture);
}

// What an orchestrator asks of a Hugging Face config. The engine reads the GGUF itself, so nothing here changes a
// number it computes.
Json make_config(const ModelConfig& c, const TokenizerData& tokenizer, const std::string& file) {
  const Family family = family_of(c, file);
  Json json = {{"architectures", {family.architecture}},
               {"model_type", family.model_type},
               {"hidden_size", c.hidden},
               {"num_hidden_layers", c.layers},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_size},
               {"intermediate_size", c.ffn},
               {"vocab_size", c.vocab},
               {"max_position_embeddings", c.max_position},
               {"rms_norm_eps", c.norm_eps},
               {"rope_theta", c.rope_theta},
               {"hidden_act", "silu"},
               {"tie_word_embeddings", c.tied_embeddings},
               {"attention_bias", c.attention_bias},
               {"mlp_bias", c.mlp_bias},
               {"torch_dtype", "float16"}};
  if (c.sliding_window > 0) json["sliding_window"] = c.sliding_window;
  if (c.experts > 0) {
    json["num_experts"] = c.experts;
    json["num_experts_per_tok"] = c.experts_per_token;
    json["moe_intermediate_size"] = c.expert_ffn;
  }
  if (c.architecture == "gpt2") {
    json["n_embd"] = c.hidden;
    json["n_layer"] = c.layers;
    json["n_head"] = c.heads;
    json["n_inner"] = c.ffn;
    json["n_positions"] = c.max_position;
  }
  if (tokenizer.bos_id >= 0) json["bos_token_id"] = tokenizer.bos_id;
  if (tokenizer.eos_id >= 0) json["eos_token_id"] = tokenizer.eos_id;
  return json;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw_error(ErrorKind::io, "{}: cannot be written", path.string());
}

// The same file under another name costs no disk; a copy where the file system cannot do that.
void link_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(to) && fs::equivalent(from, to, error)) return;
  fs::remove(to, error);
  fs::create_hard_link(fs::canonical(from), to, error);
  if (!error) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) throw_error(ErrorKind::io, "{}: cannot be copied to {}: {}", from.string(), to.string(), error.message());
}

void export_hf(const ExportArgs& args) {
  const ModelFiles files = open_model(args.file);
  if (!files.gguf)
    throw_error(ErrorKind::bad_call, "{}: not a GGUF file; a Hugging Face folder needs no export", args.file);
  if (args.file.find("-of-0") != std::string::npos)
    throw_error(ErrorKind::declined, "{}: split files are not exported; join them first", args.file);
  const TokenizerData tokenizer = read_gguf_tokenizer(*files.gguf, args.file);
  const fs::path folder = args.folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw_error(ErrorKind::io, "{}: cannot be created: {}", folder.string(), error.message());

  write_file(folder / "config.json", make_config(files.config, tokenizer, args.file).dump(1) + "\n");
  write_file(folder / "generation_config.json", Json{{"eos_token_id", tokenizer.end_ids}}.dump(1) + "\n");
  write_file(folder / "tokenizer.json", write_tokenizer_json(tokenizer));
  write_file(folder / "tokenizer_config.json", write_tokenizer_config(tokenizer, files.config.max_position));
  link_file(files.gguf->name(), folder / fs::path(files.gguf->name()).filename());
  fmt::print("{}: config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the GGUF\n",
             folder.string());
}

}  // namespace

void add_export_hf(Program& program) {
  auto args = std::make_shared<ExportArgs>();
  Options command = program.add_command("export-hf", "a folder that vLLM can serve, from a GGUF file");
  command.option("file", args->file, "the GGUF file").required();
  command.option("folder", args->folder, "the folder to write").required();
  command.callback([args] { export_hf(*args); });
}

}  // namespace ingot::cli
