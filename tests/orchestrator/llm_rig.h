#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/internals.h"
#include "engine/sequences.h"
#include "eventually.h"
#include "ingot/llm.h"
#include "text/tokenizer_load.h"

// A running Llm on a tiny checkpoint or on the default model, and whole answers from it.
namespace ingot::testing {

struct Choice {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenScore> scores;
  FinishReason finish = FinishReason::none;
  std::variant<std::monostate, int32_t, std::string> stop_reason;
};

// Reads a generation to its end.
inline std::vector<Choice> collect(Generation& generation) {
  std::vector<Choice> choices;
  for (bool done = false; !done;) {
    if (!generation.wait(std::chrono::seconds(60))) {
      ADD_FAILURE() << "no progress in a minute";
      break;
    }
    done = generation.done();  // before take(): what comes in between is taken in the next round
    for (ChoiceDelta& delta : generation.take()) {
      if (choices.size() <= static_cast<size_t>(delta.index)) choices.resize(delta.index + 1);
      Choice& choice = choices[delta.index];
      EXPECT_EQ(choice.finish, FinishReason::none) << "a delta after the end";
      choice.text += delta.text;
      choice.token_ids.insert(choice.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      choice.scores.insert(choice.scores.end(), delta.scores.begin(), delta.scores.end());
      choice.finish = delta.finish;
      choice.stop_reason = delta.stop_reason;
    }
  }
  return choices;
}

inline std::vector<Choice> answer(Llm& llm, GenerationRequest request) {
  return collect(*llm.submit(std::move(request)));
}

inline LlmOptions tiny_options(const std::string& model = "llama-bf16-llama3") {
  LlmOptions options;
  options.engine.model = fixture_model(model);
  options.engine.threads = 1;
  options.engine.max_seqs = 16;
  options.engine.block_size = 8;
  options.engine.kv_blocks = 128;
  options.engine.max_model_len = 96;
  options.engine.max_step_tokens = 64;
  return options;
}

inline GenerationRequest greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// Holds the step loop from some news of a request, the first, until open(): what is submitted meanwhile is there at
// once, however busy the machine is. To be declared after the Llm.
class LoopGate {
 public:
  ~LoopGate() { open(); }
  // For Llm::submit(); of one request.
  std::function<void()> notify(int at = 1) {
    return [held = held_, opened = opened_.get_future().share(), at]() mutable {
      if (--at != 0) return;
      held->set_value();
      opened.wait();
    };
  }
  void wait_held() { held_->get_future().wait(); }
  void open() {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }

 private:
  std::shared_ptr<std::promise<void>> held_ = std::make_shared<std::promise<void>>();
  std::promise<void> opened_;
  bool is_open_ = false;
};

// They run side by side, however slowly this thread gets on: the loop stands still from the first token of the first
// until all of them are there.
inline std::vector<std::shared_ptr<Generation>> submit_together(Llm& llm,
                                                                const std::vector<GenerationRequest>& requests) {
  std::vector<std::shared_ptr<Generation>> running;
  LoopGate gate;
  for (const GenerationRequest& request : requests)
    running.push_back(llm.submit(request, running.empty() ? gate.notify() : nullptr));
  return running;
}

// An Llm of token ids above a device that can be made to fail.
struct FailingLlm {
  explicit FailingLlm(const LlmOptions& options) : FailingLlm(Engine::load(options.engine), options) {}

  Backend& device;
  Llm llm;

 private:
  FailingLlm(std::unique_ptr<Engine> engine, const LlmOptions& options)
      : device(EngineInternals::device(*engine)), llm(std::move(engine), nullptr, options) {}
};

// Nothing is left over: no request, no held block, and the books are right.
inline void expect_clean(Llm& llm) {
  EXPECT_TRUE(test::eventually([&llm] { return llm.idle(); }));
  for (const std::string& fault : llm.check_integrity()) ADD_FAILURE() << fault;
  const LlmStats stats = llm.stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.blocks_used, 0);
  EXPECT_EQ(stats.host_bytes, 0u);
}

}  // namespace ingot::testing
