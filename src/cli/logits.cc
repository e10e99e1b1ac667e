#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <utility>

#include "cli/common.h"
#include "cli/options.h"
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

// A NumPy file, written front to back: float32 [rows, cols] in C order.
class NpyWriter {
 public:
  NpyWriter(const std::string& path, size_t rows, size_t cols) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) throw_error(ErrorKind::io, "{}: cannot be written", path);
    std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
    constexpr size_t kPreamble = 10;  // magic, version, header length; all of it a multiple of 64
    header.resize((kPreamble + header.size() + 1 + 63) / 64 * 64 - kPreamble - 1, ' ');
    header += '\n';
    const auto length = static_cast<uint16_t>(header.size());
    write("\x93NUMPY\x01\x00", 8);
    write(&length, 2);
    write(header.data(), header.size());
  }
  ~NpyWriter() {
    if (file_ != nullptr) std::fclose(file_);
  }

  void write(const void* data, size_t bytes) {
    if (std::fwrite(data, 1, bytes, file_) != bytes) throw_error(ErrorKind::io, "{}: the disk is full or gone", path_);
  }
  void close() {
    FILE* file = std::exchange(file_, nullptr);
    if (std::fclose(file) != 0) throw_error(ErrorKind::io, "{}: the disk is full or gone", path_);
  }

 private:
  std::string path_;
  FILE* file_;
};

void logits(const LogitsArgs& args) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (args.prompt.ids.empty()) tokenizer = open_tokenizer(resolve_model(args.model.model));
  const std::vector<int32_t> ids = prompt_ids(args.prompt, tokenizer.get());
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
  NpyWriter file(args.out, ids.size(), static_cast<size_t>(limits.vocab));
  ProgressBar bar("logits");
  StepBuilder builder(limits.block_size);
  const SamplingParams greedy{.temperature = 0};
  for (int64_t done = 0; done < length;) {
    const int64_t rows = std::min<int64_t>({length - done, limits.max_logits_rows, limits.max_step_tokens});
    builder.clear();
    const int32_t first = builder.add(std::span(ids).subspan(done, rows), done, blocks);
    for (int32_t r = 0; r < rows; ++r) builder.sample(first + r, greedy, -1, {.kind = RowOutput::Kind::full_logits});
    for (const RowResult& row : engine->run(builder.finish()).rows)
      file.write(row.logits.data(), row.logits.size() * sizeof(float));
    done += rows;
    bar.update(static_cast<size_t>(done), ids.size());
  }
  file.close();
}

}  // namespace

void add_logits(Program& program) {
  auto args = std::make_shared<LogitsArgs>();
  Options command = program.add_command("logits", "write the logits of every position as a NumPy file");
  add_engine_options(command, args->model);
  add_prompt_options(command, args->prompt);
  command.option("-o,--out", args->out, "the file: float32 [n, vocab]").required();
  command.callback([args] { logits(*args); });
}

}  // namespace ingot::cli
