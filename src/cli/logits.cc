#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>

#include "cli/common.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "ingot/step_builder.h"
#include "ingot/tokenizer.h"

namespace ingot::cli {
namespace {

struct LogitsArgs {
  ModelArgs model;
  PromptArgs prompt;
  std::string out;
};

// Of a NumPy file: float32 [rows, cols] in C order. With the ten bytes before it a multiple of 64.
std::string npy_header(size_t rows, size_t cols) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const char length[] = {static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(length, 2) + header;
}

void logits(const LogitsArgs& args) {
  if (followed_rank_0(args.model)) return;
  std::shared_ptr<const Tokenizer> tokenizer;
  const Prompt prompt = read_prompt(args.prompt);
  if (prompt.ids.empty()) tokenizer = open_tokenizer(resolve_model(args.model.model));
  const std::vector<int32_t> ids = prompt_ids(prompt, tokenizer.get());
  if (ids.empty()) throw_error(ErrorKind::bad_call, "the prompt is empty");
  ModelArgs model = args.model;
  model.engine.max_seqs = 1;
  model.engine.max_logits_rows = 64;
  const std::unique_ptr<Engine> engine = load_engine(model);
  const EngineLimits& limits = engine->limits();
  const int64_t length = static_cast<int64_t>(ids.size());
  if (length > limits.max_model_len)
    throw_error(ErrorKind::bad_call, "the prompt has {} tokens, the context holds {}", length, limits.max_model_len);

  std::vector<int32_t> blocks(static_cast<size_t>((length + limits.block_size - 1) / limits.block_size));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::ofstream file(args.out, std::ios::binary);
  if (!file) throw_error(ErrorKind::io, "{}: cannot be written", args.out);
  file << npy_header(ids.size(), static_cast<size_t>(limits.vocab));
  Progress progress("logits");
  StepBuilder builder(limits.block_size);
  const SamplingParams greedy{.temperature = 0};
  for (int64_t done = 0; done < length;) {
    const int64_t rows = std::min<int64_t>({length - done, limits.max_logits_rows, limits.max_step_tokens});
    builder.clear();
    const int32_t first = builder.add(std::span(ids).subspan(done, rows), done, blocks);
    for (int32_t r = 0; r < rows; ++r) builder.sample(first + r, greedy, -1, {.kind = RowOutput::Kind::full_logits});
    for (const RowResult& row : engine->run(builder.finish()).rows)
      file.write(reinterpret_cast<const char*>(row.logits.data()), row.logits.size() * sizeof(float));
    if (!file.flush()) throw_error(ErrorKind::io, "{}: the disk is full or gone", args.out);
    done += rows;
    progress.update(static_cast<size_t>(done), ids.size());
  }
}

}  // namespace

void add_logits(Program& program) {
  auto [command, args] = program.add_command("logits", "write the logits of every position as a NumPy file", logits);
  add_engine_options(command, args.model);
  add_prompt_options(command, args.prompt);
  command.option("-o,--out", args.out, "the file: float32 [n, vocab]").required();
}

}  // namespace ingot::cli
