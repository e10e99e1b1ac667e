#include "cli/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "core/nearest_name.h"

namespace ingot::cli {
namespace {

// A word of llama.cpp, ollama, vLLM or mlx-lm, and what does the same here.
struct Habit {
  std::string_view word;
  std::string_view instead;
};

constexpr std::array kOptionHabits = std::to_array<Habit>({
    {"-ngl", "every layer runs on the device; choose it with --device"},
    {"--n-gpu-layers", "every layer runs on the device; choose it with --device"},
    {"--gpu-layers", "every layer runs on the device; choose it with --device"},
    {"-hf", "-m OWNER/NAME fetches from the hub"},
    {"-hfr", "-m OWNER/NAME fetches from the hub"},
    {"--hf-repo", "-m OWNER/NAME fetches from the hub"},
    {"-cnv", "`ingot chat` holds a conversation, `run --chat` asks once"},
    {"--conversation", "`ingot chat` holds a conversation, `run --chat` asks once"},
    {"-i", "`ingot chat` holds a conversation"},
    {"--interactive", "`ingot chat` holds a conversation"},
    {"-b", "--max-step-tokens bounds what one step reads"},
    {"-ub", "--max-step-tokens bounds what one step reads"},
    {"--batch-size", "--max-step-tokens bounds what one step reads"},
    {"--ubatch-size", "--max-step-tokens bounds what one step reads"},
    {"--max-num-batched-tokens", "use --max-step-tokens"},
    {"-np", "`serve` has --max-seqs"},
    {"--parallel", "`serve` has --max-seqs"},
    {"--max-num-seqs", "`serve` has --max-seqs"},
    {"-fa", "attention is always computed so; leave it out"},
    {"--flash-attn", "attention is always computed so; leave it out"},
    {"--mlock", "leave it out: weights are packed into memory of their own"},
    {"--no-mmap", "leave it out: weights are packed into memory of their own"},
    {"-ctk", "use --kv-dtype, for keys and values alike"},
    {"-ctv", "use --kv-dtype, for keys and values alike"},
    {"--cache-type-k", "use --kv-dtype, for keys and values alike"},
    {"--cache-type-v", "use --kv-dtype, for keys and values alike"},
    {"--kv-cache-dtype", "use --kv-dtype"},
    {"--repeat-penalty", "use --repetition-penalty"},
    {"--quantization", "use --quantize int8 or int4"},
    {"--gpu-memory-utilization", "--kv-blocks bounds the KV cache"},
    {"-tp", "a model runs on one device"},
    {"--tensor-parallel-size", "a model runs on one device"},
    {"--trust-remote-code", "leave it out: no code of a model is ever run"},
    {"--enable-prefix-caching", "leave it out: prefixes are always cached"},
    {"--enforce-eager", "leave it out: there is one way to run"},
    {"--jinja", "leave it out: the model's template is always used"},
    {"--alias", "`serve` has --served-model-name"},
    {"--no-webui", "`serve` has --no-web"},
    {"-v", "VLLM_METAL_PROFILE=1 prints where the time goes; --version the version"},
    {"--verbose", "VLLM_METAL_PROFILE=1 prints where the time goes"},
    {"--lora", "adapters are not supported; merge them into the weights first"},
    {"--mmproj", "pictures are not supported"},
});

constexpr std::array kCommandHabits = std::to_array<Habit>({
    {"show", "inspect"},    {"info", "inspect"},   {"ls", "list"},          {"models", "list"},
    {"remove", "rm"},       {"delete", "rm"},      {"download", "pull"},    {"fetch", "pull"},
    {"server", "serve"},    {"api", "serve"},      {"start", "serve"},      {"generate", "run"},
    {"complete", "run"},    {"completion", "run"}, {"cli", "run"},          {"ask", "run"},
    {"benchmark", "bench"}, {"ppl", "perplexity"}, {"convert", "quantize"}, {"export", "export-hf"},
    {"token", "tokenize"},  {"check", "doctor"},
});

const Habit* find_habit(std::span<const Habit> habits, std::string_view word) {
  const auto found = std::ranges::find(habits, word, &Habit::word);
  return found == habits.end() ? nullptr : &*found;
}

}  // namespace

std::string remedy_for_option(std::string_view word, const std::vector<std::string>& names) {
  if (const Habit* habit = find_habit(kOptionHabits, word)) return fmt::format(": {}", habit->instead);
  const std::string name = nearest_name(word, names);
  return name.empty() ? "" : fmt::format("; did you mean {}?", name);
}

std::string remedy_for_command(std::string_view word, const std::vector<std::string>& names) {
  if (const Habit* habit = find_habit(kCommandHabits, word)) return fmt::format(": it is `ingot {}`", habit->instead);
  std::error_code ignored;
  if (word.ends_with(".gguf") || (word.size() < 4096 && std::filesystem::exists(word, ignored)))
    return fmt::format("; to use a model: `ingot chat -m {}`", word);
  const std::string name = nearest_name(word, names);
  return name.empty() ? "" : fmt::format("; did you mean `{}`?", name);
}

}  // namespace ingot::cli
