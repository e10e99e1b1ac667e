#include "cli/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/hub_models.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "collective/mpi_group.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/threads.h"
#include "core/utf8.h"
#include "engine/follower.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

// Threads that share a core wait for each other at every operation.
void warn_of_threads(const EngineOptions& options) {
  const int cpus = ThreadPool::available_cpus();
  if (options.threads > cpus)
    fmt::print(stderr, "ingot: {} threads share {}, which is slower than one a CPU (--threads 0)\n", options.threads,
               counted(cpus, "CPU"));
}

}  // namespace

void add_engine_options(Options command, ModelArgs& args) {
  add_model_options(command, args);
  add_device_options(command, args);
}

void add_model_options(Options command, ModelArgs& args) {
  command.option("-m,--model", args.model,
                 "GGUF file, Hugging Face folder, or OWNER/NAME on the hub (default: SmolLM2-135M-Instruct)");
  // Taken out of the arguments before they are parsed (config_file.h); declared here for --help.
  command.option("--config", args.config, "read flags from a file of `name = value` lines; the command line wins")
      .type_name("FILE");
}

void add_device_options(Options command, ModelArgs& args) {
  EngineOptions& e = args.engine;
  command
      .option("--load-format", e.load_format, "auto, or dummy: random weights in the shapes of a folder's config.json")
      .show_default();
  command.option("--dtype", e.dtype, "format of dummy weights: bf16, f16, q8_0, q4_k, ...; auto: the config's")
      .show_default();
  command.option("--quantize", e.quantize, "int8 or int4: quantize f32, f16 and bf16 weights while they are loaded");
  command.option("--device", e.device, "auto, cpu, cuda or metal").show_default();
  command.option("-t,--threads", e.threads, "CPU threads; 0: one a core this process may use, by its control group too")
      .show_default()
      .range(0, 1024);
  command.option("--isa", e.isa, "force a CPU path; `ingot doctor` lists those that run here");
  command.option("--tp", e.tp, "processes that share the model, 1, 2 or 4; start them by `mpirun -n N ingot ...`")
      .show_default()
      .one_of({"1", "2", "4"});
  command
      .option("--pp", e.pp, "stages that the layers are cut into, each of --tp processes: `mpirun -n TP*PP ingot ...`")
      .show_default()
      .range(1, 64);
  command.option("--pp-layers", e.pp_layers, "layers of each stage: 20,12; without it they are cut by what they cost")
      .split_at(',')
      .type_name("N,N,...");
  command
      .option("-c,--max-model-len,--ctx-size", e.max_model_len,
              "longest sequence; 0: the model's own, as far as memory allows")
      .non_negative();
  command.option("--kv-blocks", e.kv_blocks, "blocks of the KV cache; 0: enough for the work, as far as memory allows")
      .non_negative();
  command.option("--block-size", e.block_size, "positions a KV block holds").show_default();
  command.option("--kv-dtype", e.kv_dtype, "KV cache format: f16, bf16, int8 or f32").show_default();
  command
      .option("--max-step-tokens", e.max_step_tokens, "most tokens in one step; 0: VLLM_METAL_MAX_BATCH_SIZE or 2048")
      .non_negative();
  command
      .option("--packed-cache", e.packed_cache,
              "CPU: keep weights in files as they are packed for it, and take them from there the next time. read: "
              "into memory; map: as the files lie, shared by all processes")
      .show_default()
      .one_of({"off", "read", "map"});
  command
      .option("--packed-cache-dir", e.packed_cache_dir, "folder of these files (default: packed in the cache folder)")
      .type_name("DIR");
  command.option("--packed-cache-bytes", e.packed_cache_bytes, "of all of them; the least recently used make room")
      .show_default()
      .bytes();
}

void add_speculation_options(Options command, SpeculationArgs& args) {
  command
      .option("--speculate", args.kind,
              "guess tokens and verify several in a step, as far as that pays; answers stay the same. lookup: from the "
              "request's own text; suffix: from the client's last answers too; draft: by the model of --draft-model; "
              "mtp: by layers that the model has for it; "
              "auto: draft where there is such a model, else suffix")
      .show_default()
      .one_of({"auto", "off", "lookup", "suffix", "draft", "mtp"}, {"eagle", "eagle3", "medusa"});
  command.option("--draft-model", args.draft_model,
                 "a small model with the same vocabulary that guesses tokens, or an EAGLE-3 head that was made for the "
                 "model, as -m takes it");
}

void set_speculation(const SpeculationArgs& args, LlmOptions& options) {
  choose_speculation(options, args.kind, args.draft_model);
  if (!options.draft_model.empty()) options.draft_model = resolve_model(options.draft_model);
}

void add_prefix_options(Options command, PrefixArgs& args) {
  command
      .option("--prefix-ram", args.ram,
              "host memory for KV blocks that leave the device; 0: none, or what is needed for --prefix-dir")
      .show_default()
      .bytes();
  command
      .option("--prefix-dir", args.dir,
              "folder where KV blocks are kept for later runs: a prompt that is known there is not computed again")
      .type_name("DIR");
  command.option("--prefix-dir-bytes", args.dir_bytes, "of all of its files; the least recently used make room")
      .show_default()
      .bytes();
}

void PrefixArgs::apply(LlmOptions& options) const {
  options.engine.host_cache_bytes = static_cast<int64_t>(ram);
  options.prefix_dir = dir;
  options.prefix_dir_bytes = dir_bytes;
}

void add_pooling_options(Options command, ModelArgs& args) {
  command.flag("--embeddings", args.engine.embeddings, "texts as vectors, of a model that is not made for it too");
  command
      .option("--pooling", args.engine.pooling,
              "the vector of a text: of its last token, the mean, or of its first (cls); auto: as the model's files "
              "say, else last")
      .show_default()
      .one_of({"auto", "last", "mean", "cls"});
}

void add_model_argument(Options command, ModelArgs& args) {
  command.option("MODEL", args.model, "the model, as -m takes it").excludes(*command.find_option("--model"));
}

void add_prompt_options(Options command, PromptArgs& args) {
  command.option("PROMPT", args.word, "the prompt; without one standard input is read");
  command.option("-p,--prompt", args.text, "the prompt");
  command.option("-f,--file", args.file, "read the prompt from a file; - for standard input").type_name("FILE");
  command.option("--ids", args.ids, "the prompt as token ids: 1,2,3").split_at(',').type_name("IDS");
}

Prompt read_prompt(const PromptArgs& args) {
  const int given = !args.word.empty() + !args.text.empty() + !args.file.empty() + !args.ids.empty();
  if (given > 1) throw_error(ErrorKind::bad_call, "give one prompt: a word of its own, -p, -f or --ids");
  if (!args.ids.empty()) return {"", args.ids};
  const bool piped = isatty(STDIN_FILENO) == 0;
  if (given == 0 && !piped)
    throw_error(ErrorKind::bad_call,
                "there is no prompt: `ingot run \"TEXT\"`, or -f FILE, or `echo TEXT | ingot run`");
  std::error_code ignored;
  if (args.word.ends_with(".gguf") || (!args.word.empty() && fs::exists(fs::path(args.word) / "config.json", ignored)))
    throw_error(ErrorKind::bad_call, "{} is a model, not a prompt: `ingot run -m {} \"TEXT\"`", args.word, args.word);
  std::string text = !args.word.empty() ? args.word : args.text;
  if (text.empty()) text = read_file(args.file.empty() ? "-" : args.file);
  if (text.empty()) throw_error(ErrorKind::bad_call, "the prompt is empty");
  if (!is_valid_utf8(text)) throw_error(ErrorKind::bad_call, "the prompt is not UTF-8 text; convert it with iconv");
  return {std::move(text), {}};
}

std::string resolve_model(const std::string& given) {
  if (!given.empty()) {
    if (const auto found = find_hub_model(given)) return *found;
    std::error_code ignored;
    if (!fs::exists(given, ignored) && given.find('/') == std::string::npos)
      throw_error(ErrorKind::io,
                  "{}: no such file or folder; models of the hub are called OWNER/NAME, `ingot list` shows "
                  "those that are here",
                  given);
    return given;
  }
  return fetched_default_model();
}

bool followed_rank_0(const ModelArgs& args) {
  EngineOptions options = args.engine;
  if (options.ranks() == 1) return false;
  options.group = join_mpi(options.ranks());
  if (options.group->rank() == 0) return false;
  // Rank 0 says when it is over: what it drains still needs the others.
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, SIG_IGN);
  try {
    options.model = resolve_model(args.model);
    follow(options);
  } catch (const std::exception& error) {
    options.group->abort(error.what());
  }
  return true;
}

std::unique_ptr<Engine> load_engine(const ModelArgs& args) {
  EngineOptions options = args.engine;
  options.model = resolve_model(args.model);
  if (options.ranks() > 1) options.group = join_mpi(options.ranks());
  warn_of_threads(options);
  Progress progress("loading", Progress::Unit::bytes);
  options.progress = [&](size_t done, size_t total) { progress.update(done, total); };
  return Engine::load(options);
}

std::unique_ptr<Llm> load_llm(LlmOptions options) {
  options.engine.model = resolve_model(options.engine.model);
  if (options.engine.ranks() > 1) options.engine.group = join_mpi(options.engine.ranks());
  warn_of_threads(options.engine);
  Progress progress("loading", Progress::Unit::bytes);
  options.engine.progress = [&progress, told = options.engine.progress](size_t done, size_t total) {
    progress.update(done, total);
    if (told) told(done, total);
  };
  return Llm::load(options);
}

std::string read_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  if (fs::is_directory(path)) throw_error(ErrorKind::io, "{}: is a folder; give a file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_error(ErrorKind::io, "{}: {}", path, fs::exists(path) ? "cannot be read" : "no such file");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<int32_t> prompt_ids(const Prompt& prompt, const Tokenizer* tokenizer) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (tokenizer == nullptr) throw_error(ErrorKind::bad_call, "this model has no tokenizer: give the prompt with --ids");
  return tokenizer->encode(prompt.text, {.add_special = true, .parse_special = false});
}

}  // namespace ingot::cli
