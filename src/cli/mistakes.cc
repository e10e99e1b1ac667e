#include "cli/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

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

// Letters to insert, drop, change or swap with their neighbour until one word is the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;  // nobody mistypes more
  std::string_view wanted = without_dashes(word);
  if (wanted.size() < 2 || wanted.size() > kLongest) return "";
  std::string best;
  size_t least = std::clamp<size_t>(wanted.size() / 3, 1, 3) + 1;
  for (const std::string& name : names) {
    const std::string_view candidate = without_dashes(name);
    if (candidate.size() < 2) continue;
    const size_t d = distance(wanted, candidate);
    if (d < least) {
      least = d;
      best = name;
    }
  }
  if (!best.empty()) return best;
  // A part of the name: --model-len, --penalty.
  for (const std::string& name : names)
    if (wanted.size() >= 4 && name.find(wanted) != std::string::npos) return name;
  return "";
}

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
