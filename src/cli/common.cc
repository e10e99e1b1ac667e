#include "cli/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/hub_models.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/settings.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

fs::path cache_folder() {
  if (const auto cache = environment("INGOT_CACHE")) return *cache;
  if (const auto xdg = environment("XDG_CACHE_HOME")) return fs::path(*xdg) / "ingot";
  if (const auto home = environment("HOME")) return fs::path(*home) / ".cache" / "ingot";
  return ".cache/ingot";
}

}  // namespace

void add_engine_options(Options command, ModelArgs& args) {
  EngineOptions& e = args.engine;
  command.option("-m,--model", args.model,
                 "GGUF file, Hugging Face folder, or OWNER/NAME on the hub (default: SmolLM2-135M-Instruct)");
  command
      .option("--load-format", e.load_format, "auto, or dummy: random weights in the shapes of a folder's config.json")
      .show_default();
  command.option("--dtype", e.dtype, "format of dummy weights: bf16, f16, q8_0, q4_k, ...; auto: the config's")
      .show_default();
  command.option("--quantize", e.quantize, "int8 or int4: quantize f32, f16 and bf16 weights while they are loaded");
  command.option("--device", e.device, "auto, cpu, cuda or metal").show_default();
  command.option("--threads", e.threads, "CPU threads; 0: one a core this process may use")
      .show_default()
      .range(0, 1024);
  command.option("--isa", e.isa, "force a CPU path; `ingot doctor` lists those that run here");
  command.option("--max-model-len", e.max_model_len, "longest sequence; 0: the model's own, as far as memory allows")
      .non_negative();
  command.option("--kv-blocks", e.kv_blocks, "blocks of the KV cache; 0: enough for the work, as far as memory allows")
      .non_negative();
  command.option("--block-size", e.block_size, "positions a KV block holds").show_default();
  command.option("--kv-dtype", e.kv_dtype, "KV cache format: f16, bf16, int8 or f32").show_default();
  command
      .option("--max-step-tokens", e.max_step_tokens, "most tokens in one step; 0: VLLM_METAL_MAX_BATCH_SIZE or 2048")
      .non_negative();
  // Taken out of the arguments before they are parsed (config_file.h); declared here for --help.
  command.option("--config", args.config, "read flags from a file of `name = value` lines; the command line wins");
}

void add_prompt_options(Options command, PromptArgs& args) {
  Options group = command.exactly_one("prompt", "exactly one of");
  group.option("-p,--prompt", args.text, "the prompt");
  group.option("-f,--file", args.file, "read the prompt from a file; - for standard input");
  group.option("--ids", args.ids, "the prompt as token ids: 1,2,3").split_at(',');
}

std::string resolve_model(const std::string& given) {
  if (!given.empty()) return find_hub_model(given).value_or(given);
  if (const auto path = environment("INGOT_DEFAULT_MODEL")) return *path;
  const fs::path path = cache_folder() / "models" / kDefaultModelFile;
  if (!fs::exists(path))
    throw_error(ErrorKind::bad_call,
                "no model given and the default one is not at {}: give one with -m, or fetch it with `make model`",
                path.string());
  return path.string();
}

std::unique_ptr<Engine> load_engine(const ModelArgs& args) {
  EngineOptions options = args.engine;
  options.model = resolve_model(args.model);
  ProgressBar bar("loading");
  options.progress = [&bar](size_t done, size_t total) { bar.update(done, total); };
  return Engine::load(options);
}

std::unique_ptr<Llm> load_llm(LlmOptions options) {
  options.engine.model = resolve_model(options.engine.model);
  ProgressBar bar("loading");
  options.engine.progress = [&bar, told = options.engine.progress](size_t done, size_t total) {
    bar.update(done, total);
    if (told) told(done, total);
  };
  return Llm::load(options);
}

std::string read_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_error(ErrorKind::io, "{}: cannot be read", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string prompt_text(const PromptArgs& args) { return args.file.empty() ? args.text : read_file(args.file); }

std::vector<int32_t> prompt_ids(const PromptArgs& args, const Tokenizer* tokenizer) {
  if (!args.ids.empty()) return args.ids;
  if (tokenizer == nullptr) throw_error(ErrorKind::bad_call, "this model has no tokenizer: give the prompt with --ids");
  return tokenizer->encode(prompt_text(args), {.add_special = true, .parse_special = false});
}

std::string draw_bar(int percent, int width) {
  const int filled = percent * width / 100;
  return fmt::format("[{:█<{}}{:·<{}}]", "", filled, "", width - filled);
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (terminal_ && last_percent_ >= 0) fmt::print(stderr, "\r\x1b[K");
}

void ProgressBar::update(size_t done, size_t total) {
  const int percent = total == 0 ? 100 : static_cast<int>(done * 100 / total);
  if (!terminal_ || percent == last_percent_) return;
  last_percent_ = percent;
  constexpr int kWidth = 30;
  fmt::print(stderr, "\r{} {} {:3}%", label_, draw_bar(percent, kWidth), percent);
  std::fflush(stderr);
}

}  // namespace ingot::cli
