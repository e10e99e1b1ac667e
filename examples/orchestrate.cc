// An orchestrator of its own, in a page: several prompts, one engine. It owns the block numbers and decides what each
// step runs; the engine owns every tensor. All prompts are read in one step, then each step draws one token for every
// sequence.
//   orchestrate model.gguf "The capital of France is" "Two and two make"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <ingot/engine.h>
#include <ingot/error.h>
#include <ingot/step_builder.h>
#include <ingot/tokenizer.h>

namespace {

constexpr int kNewTokens = 16;

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  int64_t computed = 0;  // tokens whose keys and values are in the cache
  bool done = false;
};

// Room for `length` tokens. This pool only grows; a real one gives blocks back.
void reserve(Sequence& sequence, int64_t length, int64_t block_size, int32_t& next_block) {
  while (static_cast<int64_t>(sequence.blocks.size()) * block_size < length) sequence.blocks.push_back(next_block++);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: orchestrate MODEL TEXT...\n"), 2;
  try {
    const auto tokenizer = ingot::open_tokenizer(argv[1]);
    const auto engine = ingot::Engine::load({.model = argv[1], .max_model_len = 256, .max_seqs = argc - 2});
    const ingot::EngineLimits& limits = engine->limits();

    std::vector<Sequence> sequences;
    for (int i = 2; i < argc; ++i) sequences.push_back({.tokens = tokenizer->encode(argv[i])});

    int32_t next_block = 0;
    ingot::StepBuilder builder(limits.block_size);
    const ingot::SamplingParams greedy{.temperature = 0};
    for (int drawn = 0; drawn < kNewTokens; ++drawn) {
      builder.clear();
      std::vector<Sequence*> planned;
      for (Sequence& sequence : sequences) {
        if (sequence.done) continue;
        const int64_t length = static_cast<int64_t>(sequence.tokens.size());
        reserve(sequence, length, limits.block_size, next_block);
        const auto rows = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.computed));
        builder.add(rows, sequence.computed, sequence.blocks);
        builder.sample(builder.rows() - 1, greedy);
        sequence.computed = length;
        planned.push_back(&sequence);
      }
      if (planned.empty()) break;
      const ingot::StepResult result = engine->run(builder.finish());
      for (size_t i = 0; i < planned.size(); ++i) {
        planned[i]->tokens.push_back(result.rows[i].token);
        planned[i]->done = tokenizer->is_end(result.rows[i].token);
      }
    }
    for (const Sequence& sequence : sequences) std::printf("%s\n", tokenizer->decode(sequence.tokens).c_str());
    return 0;
  } catch (const ingot::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
