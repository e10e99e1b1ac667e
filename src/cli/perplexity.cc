#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/common.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "ingot/step_builder.h"
#include "ingot/tokenizer.h"

namespace ingot::cli {
namespace {

struct PerplexityArgs {
  ModelArgs model;
  std::string file;
  int64_t context = 1024;
  int64_t score_from = 1;
  int64_t chunks = 0;
  bool json = false;
};

// A stretch of the text scored on its own, as far as it has been run.
struct Window {
  std::span<const int32_t> ids;
  std::vector<int32_t> blocks;
  int64_t done = 0;
};

// Scores windows side by side: each step takes as many rows of as many windows as its limits allow.
class Scorer {
 public:
  Scorer(Engine& engine, int64_t score_from)
      : engine_(engine), score_from_(score_from), builder_(engine.limits().block_size) {}

  // Runs one step over the front of `windows`; returns its rows.
  int64_t step(std::span<Window> windows) {
    const EngineLimits& limits = engine_.limits();
    builder_.clear();
    int64_t samples = 0;
    int32_t seqs = 0;
    for (Window& window : windows) {
      const int64_t room =
          std::min<int64_t>(limits.max_step_tokens - builder_.rows(), limits.max_sample_rows - samples);
      const int64_t rows = std::min<int64_t>(room, static_cast<int64_t>(window.ids.size()) - window.done);
      if (seqs == limits.max_seqs || room <= 0) break;
      if (rows <= 0) continue;
      const int32_t first = builder_.add(window.ids.subspan(window.done, rows), window.done, window.blocks);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t next = window.done + i + 1;  // the position that this row predicts
        if (next < score_from_ || next >= static_cast<int64_t>(window.ids.size())) continue;
        builder_.sample(first + static_cast<int32_t>(i), {}, -1,
                        {.kind = RowOutput::Kind::score, .target = window.ids[next]});
        ++samples;
      }
      window.done += rows;
      ++seqs;
    }
    for (const RowResult& row : engine_.run(builder_.finish()).rows) total_ -= row.logprob;
    tokens_ += samples;
    return builder_.rows();
  }

  int64_t tokens() const { return tokens_; }
  double perplexity() const { return std::exp(total_ / static_cast<double>(tokens_)); }

 private:
  Engine& engine_;
  int64_t score_from_;
  StepBuilder builder_;
  double total_ = 0;  // nats
  int64_t tokens_ = 0;
};

void perplexity(const PerplexityArgs& args) {
  if (followed_rank_0(args.model)) return;
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(resolve_model(args.model.model));
  const std::vector<int32_t> ids =
      tokenizer->encode(read_file(args.file), {.add_special = true, .parse_special = false});
  if (args.score_from >= args.context)
    throw_error(ErrorKind::bad_call, "--score-from {} leaves nothing of a window of {} to score", args.score_from,
                args.context);

  ModelArgs model = args.model;
  if (model.engine.max_model_len == 0) model.engine.max_model_len = args.context;
  constexpr int32_t kSideBySide = 4;
  model.engine.max_seqs = kSideBySide;
  const std::unique_ptr<Engine> engine = load_engine(model);
  const EngineLimits& limits = engine->limits();
  const int64_t blocks_each = (args.context + limits.block_size - 1) / limits.block_size;
  const int64_t together = std::min<int64_t>(limits.num_blocks / blocks_each, kSideBySide);
  if (together < 1)
    throw_error(ErrorKind::out_of_memory, "a window of {} tokens does not fit {} KV blocks", args.context,
                limits.num_blocks);

  std::vector<std::span<const int32_t>> texts;
  for (size_t at = 0; at < ids.size(); at += args.context)
    texts.push_back(std::span(ids).subspan(at, std::min<size_t>(args.context, ids.size() - at)));
  if (args.chunks > 0 && texts.size() > static_cast<size_t>(args.chunks)) texts.resize(args.chunks);

  Scorer scorer(*engine, std::max<int64_t>(args.score_from, 1));
  Progress progress("perplexity");
  uint64_t scored = 0, total = 0;  // tokens
  for (const std::span<const int32_t> text : texts) total += text.size();
  for (size_t at = 0; at < texts.size(); at += together) {
    std::vector<Window> windows;
    for (size_t i = at; i < std::min(texts.size(), at + static_cast<size_t>(together)); ++i) {
      Window window{texts[i], std::vector<int32_t>(blocks_each), 0};
      std::iota(window.blocks.begin(), window.blocks.end(), static_cast<int32_t>((i - at) * blocks_each));
      windows.push_back(std::move(window));
    }
    const auto unfinished = [](const Window& w) { return w.done < static_cast<int64_t>(w.ids.size()); };
    while (std::any_of(windows.begin(), windows.end(), unfinished)) {
      scored += static_cast<uint64_t>(scorer.step(windows));
      progress.update(scored, total, scorer.tokens() > 0 ? fmt::format("{:.3f} so far", scorer.perplexity()) : "");
    }
  }
  progress.clear();
  if (scorer.tokens() == 0) throw_error(ErrorKind::bad_call, "{}: too short, there is no token to score", args.file);
  if (args.json) {
    const nlohmann::ordered_json report = {{"perplexity", scorer.perplexity()}, {"tokens", scorer.tokens()}};
    fmt::print("{}\n", report.dump());
  } else {
    fmt::print("perplexity {:.4f} over {} tokens\n", scorer.perplexity(), scorer.tokens());
  }
}

}  // namespace

void add_perplexity(Program& program) {
  auto [command, args] = program.add_command("perplexity", "how well the model predicts a text", perplexity);
  add_engine_options(command, args.model);
  command.option("-f,--file", args.file, "the text").required();
  command.option("--ctx", args.context, "tokens a window").show_default().range(2, 1 << 24);
  command.option("--score-from", args.score_from, "first position of a window that is scored")
      .show_default()
      .positive();
  command.option("--chunks", args.chunks, "only the first N windows; 0: all").non_negative();
  command.flag("--json", args.json, "print one JSON object");
}

}  // namespace ingot::cli
