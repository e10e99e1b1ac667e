// How requests end, or are refused: cancelled at any moment, late, failed, too many.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <random>
#include <thread>

#include "backend/backend.h"
#include "core/error.h"
#include "engine/internals.h"
#include "formats/test_files.h"
#include "orchestrator/llm_rig.h"
#include "soak.h"

namespace ingot::testing {
namespace {

using namespace std::chrono_literals;

ErrorKind kind_of(Llm& llm, GenerationRequest request, std::string* message = nullptr) {
  try {
    llm.submit(std::move(request))->cancel();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST(LlmEnds, CancelledAtAnyMoment) {
  LlmOptions options = tiny_options();
  options.engine.max_step_tokens = 16;  // the longest prompts take several steps
  options.engine.max_seqs = 4;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::shared_ptr<Generation>> generations;
    for (int i = 0; i < 8; ++i) {
      GenerationRequest request = greedy(random_ids(1 + random() % 80, llm.limits().vocab, random()), 15);
      request.n = 1 + random() % 2;
      generations.push_back(llm.submit(request));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    for (int i = 0; i < 8; i += 2) generations[i]->cancel();
    for (int i = 0; i < 8; ++i)
      for (const Choice& choice : collect(*generations[i])) {
        const bool whole = choice.token_ids.size() == 15;
        if (i % 2 == 1) {
          EXPECT_TRUE(whole);
        }
        EXPECT_EQ(choice.finish, whole ? FinishReason::length : FinishReason::cancelled);
      }
  }
  expect_clean(llm);
}

// A prompt of several steps wakes the reader who asked for it once a step, with what was read by then.
TEST(LlmEnds, TellsHowMuchOfThePromptWasRead) {
  LlmOptions options = tiny_options();
  options.engine.max_step_tokens = 16;
  Llm llm(Engine::load(options.engine), nullptr, options);
  for (const bool asked : {false, true}) {
    GenerationRequest request = greedy(random_ids(70, llm.limits().vocab, asked), 1);
    request.report_reading = asked;
    std::vector<int64_t> read;
    std::promise<std::weak_ptr<Generation>> made;  // weak: the generation holds what is told of it
    const std::shared_ptr<Generation> generation = llm.submit(request, [watch = made.get_future().share(), &read] {
      read.push_back(watch.get().lock()->summary().read_tokens);
    });
    made.set_value(generation);
    collect(*generation);
    expect_clean(llm);  // after this nobody writes into `read`
    EXPECT_EQ(read, asked ? (std::vector<int64_t>{16, 32, 48, 64, 70}) : (std::vector<int64_t>{70}));
    EXPECT_GT(generation->summary().prefill_s, 0);
  }
}

// Where every token is forbidden the choice ends and says so; nobody else notices, not even when blocks are short and
// sequences are computed again from their tokens.
TEST(LlmEnds, NothingAllowedEndsTheChoice) {
  LlmOptions options = tiny_options();
  options.engine.kv_blocks = 24;  // for two of the neighbours at a time
  // All of them are read in a few steps and grow alike, however long a step takes: one loses its blocks then.
  options.target_step_ms = 60'000;
  options.speculate = Speculation::off;
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<Choice> alone = answer(llm, greedy({9, 8, 7}, 60));
  LoopGate gate;  // all of them run at a time
  const auto first = llm.submit(greedy({3, 2, 1}, 1), gate.notify());
  gate.wait_held();
  std::vector<std::shared_ptr<Generation>> neighbours, stuck;
  for (int i = 0; i < 4; ++i) {
    neighbours.push_back(llm.submit(greedy({9, 8, 7}, 60)));
    GenerationRequest request = greedy(random_ids(20, llm.limits().vocab, i), 30);
    request.sampling.allowed_token_ids = {5};
    // At once, or after the first 5 has come.
    request.sampling.bad_words = {i % 2 == 0 ? std::vector<int32_t>{5} : std::vector<int32_t>{5, 5}};
    request.n = 1 + i;
    request.best_of = i == 3 ? 5 : 0;
    stuck.push_back(llm.submit(request));
  }
  gate.open();
  for (size_t i = 0; i < stuck.size(); ++i) {
    const std::vector<Choice> choices = collect(*stuck[i]);
    ASSERT_EQ(choices.size(), i + 1);
    for (const Choice& choice : choices) {
      EXPECT_EQ(choice.finish, FinishReason::no_token);
      EXPECT_EQ(choice.token_ids, std::vector<int32_t>(i % 2, 5));
    }
    const auto width = static_cast<int64_t>(i == 3 ? 5 : i + 1);
    EXPECT_EQ(stuck[i]->summary().completion_tokens, i % 2 == 0 ? 0 : width);
    EXPECT_EQ(stuck[i]->summary().error, "");
  }
  for (const auto& neighbour : neighbours) EXPECT_EQ(collect(*neighbour)[0].token_ids, alone[0].token_ids);
  EXPECT_GT(llm.stats().preemptions, 0u);
  EXPECT_EQ(llm.stats().failed_steps, 0u);
  expect_clean(llm);
}

TEST(LlmEnds, DeadlineEndsARequestWithWhatItHas) {
  LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  GenerationRequest request = greedy({1, 2, 3}, 80);
  request.deadline = std::chrono::steady_clock::now() - 1ms;
  const std::shared_ptr<Generation> late = llm.submit(request);
  EXPECT_EQ(collect(*late)[0].finish, FinishReason::timeout);
  EXPECT_FALSE(late->summary().error.empty());
  request.deadline = std::chrono::steady_clock::now() + 1h;
  EXPECT_EQ(answer(llm, request)[0].finish, FinishReason::length);
  expect_clean(llm);
}

TEST(LlmEnds, FailedStepFailsItsRequestsAndTheLoopGoesOn) {
  for (const bool overlap : {true, false}) {
    LlmOptions options = tiny_options();
    options.overlap = overlap;
    FailingLlm failing(options);
    auto& [device, llm] = failing;
    int failed = 0;
    for (int round = 0; round < (test::kSanitized ? 10 : 30); ++round) {
      // A new prompt each time: blocks that a failed step left unwritten hold something else.
      const std::vector<int32_t> prompt = random_ids(30, llm.limits().vocab, 5 + static_cast<uint32_t>(round));
      Llm other(Engine::load(options.engine), nullptr, options);
      const std::vector<Choice> expected = answer(other, greedy(prompt, 20));
      std::vector<std::shared_ptr<Generation>> generations;
      for (int i = 0; i < 6; ++i) {
        generations.push_back(llm.submit(greedy(prompt, 20)));
        if (i == 3) device.inject_failure();
        if (round % 3 == 0) std::this_thread::sleep_for(300us);
      }
      for (const auto& generation : generations) {
        const Choice choice = collect(*generation)[0];
        if (choice.finish == FinishReason::error) {
          ++failed;
          EXPECT_FALSE(generation->summary().error.empty());
        } else {
          EXPECT_EQ(choice.token_ids, expected[0].token_ids) << "an answer that went through is right";
        }
      }
      EXPECT_EQ(answer(llm, greedy(prompt, 20))[0].token_ids, expected[0].token_ids) << "after the failure";
    }
    EXPECT_GT(failed, 0);
    EXPECT_GT(llm.stats().failed_steps, 0u);
    EXPECT_EQ(llm.stats().failed_in_a_row, 0u) << "steps came through since";
    EXPECT_FALSE(llm.stats().failure.empty());
    EXPECT_EQ(llm.stats().finished_error, static_cast<uint64_t>(failed));
    expect_clean(llm);
  }
}

// Requests whose step was behind one that failed start again, and do so once: a device that goes on failing ends them.
TEST(LlmEnds, ADeviceThatAlwaysFailsEndsEveryRequest) {
  for (const bool overlap : {true, false}) {
    LlmOptions options = tiny_options();
    options.overlap = overlap;
    FailingLlm failing(options);
    auto& [device, llm] = failing;
    const std::vector<Choice> expected = answer(llm, greedy(random_ids(30, llm.limits().vocab, 0), 20));
    device.inject_failure(std::numeric_limits<int>::max());
    std::vector<std::shared_ptr<Generation>> generations;
    for (uint32_t i = 0; i < 12; ++i)
      generations.push_back(llm.submit(greedy(random_ids(30, llm.limits().vocab, i), 20)));
    for (const auto& generation : generations) EXPECT_EQ(collect(*generation)[0].finish, FinishReason::error);
    EXPECT_GE(llm.stats().failed_in_a_row, 3u) << "what /health looks at";
    device.inject_failure(0);
    EXPECT_EQ(answer(llm, greedy(random_ids(30, llm.limits().vocab, 0), 20))[0].token_ids, expected[0].token_ids);
    expect_clean(llm);
  }
}

// Without a tokenizer a model serves token ids; a broken one is not taken for none.
TEST(LlmEnds, ABrokenTokenizerIsAnError) {
  LlmOptions options = tiny_options();
  const TempDir dir;
  const std::string folder = (dir.path() / "model").string();
  std::filesystem::copy(options.engine.model, folder, std::filesystem::copy_options::recursive);
  options.engine.model = folder;
  std::filesystem::remove(folder + "/tokenizer.json");
  EXPECT_NE(Llm::load(options), nullptr);
  std::ofstream(folder + "/tokenizer.json") << "{\"model\":";
  try {
    Llm::load(options);
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file) << error.what();
  }
}

TEST(LlmEnds, RefusesWhatCanNeverBeServed) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::string message;
  EXPECT_EQ(kind_of(llm, greedy({}, 1)), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, greedy({-1}, 1)), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, greedy({static_cast<int32_t>(llm.limits().vocab)}, 1)), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, greedy(std::vector<int32_t>(96, 1), 1), &message), ErrorKind::bad_call);
  EXPECT_NE(message.find("96"), std::string::npos) << message;
  const auto with = [](auto change) {
    GenerationRequest request = greedy({1}, 2);
    change(request);
    return request;
  };
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.n = 0; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.n = 17; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.best_of = 1, r.n = 2; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.max_tokens = -1; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.logprobs = 1000; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.top_p = 0; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.logit_bias = {{-5, 1.0f}}; })), ErrorKind::bad_call);
  // A caller of the library meets the server's rules.
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.temperature = 100.5f; }), &message), ErrorKind::bad_call);
  EXPECT_EQ(message, "temperature must be at most 100, got 100.5");
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.frequency_penalty = -2.1f; }), &message), ErrorKind::bad_call);
  EXPECT_EQ(message, "frequency_penalty must be at least -2, got -2.1");
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.min_p = NAN; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.top_k = -2; })), ErrorKind::bad_call);
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.stop = {"x"}; })), ErrorKind::bad_call) << "no tokenizer";
  EXPECT_EQ(kind_of(llm, with([](auto& r) { r.sampling.logit_bias.assign(1 << 20, {1, 1.0f}); })), ErrorKind::bad_call);
  expect_clean(llm);
}

TEST(LlmEnds, LongListsOfManyRequestsNeverFailAStep) {
  LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  const auto words = static_cast<size_t>(llm.limits().max_list_words / 2 / 2);
  std::vector<std::shared_ptr<Generation>> generations;
  for (int i = 0; i < 8; ++i) {
    GenerationRequest request = greedy({1, 2, 3}, 4);
    request.sampling.logit_bias.assign(words - 8, {5, 0.001f});
    request.sampling.repetition_penalty = 1.1f;
    generations.push_back(llm.submit(request));
  }
  for (const auto& generation : generations) EXPECT_EQ(collect(*generation)[0].finish, FinishReason::length);
  expect_clean(llm);
}

// Whoever sees the end may submit again at once: with room for one request alone.
TEST(LlmEnds, WhatARequestHeldIsFreeWhenItsEndShows) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 1;
  options.max_waiting = 0;
  Llm llm(Engine::load(options.engine), nullptr, options);
  for (int round = 0; round < 200; ++round) {
    EXPECT_EQ(answer(llm, greedy({1, 2, 3}, 2))[0].token_ids.size(), 2u);
    EXPECT_TRUE(llm.idle());
    EXPECT_EQ(llm.stats().running, 0);
  }
  expect_clean(llm);
}

TEST(LlmEnds, RefusesMoreThanItCanHold) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 2;
  options.max_waiting = 3;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::vector<std::shared_ptr<Generation>> generations;
  LoopGate gate;
  for (int i = 0; i < 5; ++i)
    generations.push_back(llm.submit(greedy({1, 2, 3}, 90), i == 0 ? gate.notify() : nullptr));
  gate.wait_held();
  EXPECT_EQ(kind_of(llm, greedy({1}, 1)), ErrorKind::overloaded);
  EXPECT_GE(llm.retry_after_s(), 1.0);
  EXPECT_EQ(llm.stats().refused, 1u);
  gate.open();
  for (const auto& generation : generations) EXPECT_EQ(collect(*generation)[0].token_ids.size(), 90u);
  EXPECT_EQ(answer(llm, greedy({1}, 1))[0].finish, FinishReason::length);
  llm.drain();
  EXPECT_EQ(kind_of(llm, greedy({1}, 1)), ErrorKind::overloaded);
  expect_clean(llm);
}

TEST(LlmEnds, RefusesWhenMemoryIsShort) {
  LlmOptions options = tiny_options();
  options.min_free_memory = uint64_t{1} << 60;
  Llm short_of_memory(Engine::load(options.engine), nullptr, options);
  EXPECT_EQ(kind_of(short_of_memory, greedy({1}, 1)), ErrorKind::overloaded);
  options.min_free_memory = 0;
  options.host_budget = 1000;
  Llm small_budget(Engine::load(options.engine), nullptr, options);
  EXPECT_EQ(kind_of(small_budget, greedy({1}, 1)), ErrorKind::overloaded);
}

TEST(LlmEnds, LowerPriorityNumbersGoFirst) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 1;
  std::promise<void> all_submitted;
  std::vector<int> order;  // touched by the step loop alone until it is gone
  {
    Llm llm(Engine::load(options.engine), nullptr, options);
    // The loop stands still in the first one's notification until all the others are there. Nobody's turn comes
    // before the first one's: the step behind it is scheduled while some of the others are still on their way.
    GenerationRequest first = greedy({1, 2, 3}, 10);
    first.priority = -4;
    std::vector<std::shared_ptr<Generation>> generations = {
        llm.submit(first, [gate = all_submitted.get_future().share()] { gate.wait(); })};
    for (int i = 0; i < 4; ++i) {
      GenerationRequest request = greedy({1, 2, 3}, 1);
      request.priority = -i;
      generations.push_back(llm.submit(request, [&order, i] { order.push_back(i); }));
    }
    all_submitted.set_value();
    for (const auto& generation : generations) collect(*generation);
  }
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 0}));
}

TEST(LlmEnds, DestructionEndsWhatIsRunning) {
  const LlmOptions options = tiny_options();
  std::vector<std::shared_ptr<Generation>> generations;
  {
    Llm llm(Engine::load(options.engine), nullptr, options);
    for (int i = 0; i < 20; ++i) generations.push_back(llm.submit(greedy({1, 2, 3}, 80)));
  }
  for (const auto& generation : generations) {
    EXPECT_TRUE(generation->done());
    generation->cancel();  // nobody is there any more, and that is fine
    EXPECT_NE(collect(*generation)[0].finish, FinishReason::none);
  }
}

}  // namespace
}  // namespace ingot::testing
