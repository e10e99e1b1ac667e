// Several clients: shares of seats, places and memory, and walls in the prefix cache.
#include <gtest/gtest.h>

#include <future>

#include "core/error.h"
#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

GenerationRequest of_client(const std::string& client, std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request = greedy(std::move(prompt), max_tokens);
  request.client = client;
  return request;
}

// Whenever the request with this has news, `late` is not done: it did not have to wait for all that came before it.
// Looked at on the step loop, which does not go on meanwhile.
std::function<void()> expect_before(const Generation& late) {
  return [&late] { EXPECT_FALSE(late.done()); };
}

// One who has every seat gives some of them to whoever comes, and its answers are the same for it.
TEST(LlmClients, SeatsAreTakenFromWhoHasTheMost) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 4;
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> expected = answer(llm, greedy({3, 4, 5}, 80))[0].token_ids;
  std::vector<std::shared_ptr<Generation>> much, little;
  LoopGate all_wait, gate;
  for (int i = 0; i < 12; ++i) {
    const std::function<void()> notify = i == 0 ? all_wait.notify() : i == 3 ? gate.notify() : nullptr;
    much.push_back(llm.submit(of_client("much", {3, 4, 5}, 80), notify));
  }
  all_wait.open();
  gate.wait_held();
  EXPECT_EQ(llm.stats().running, 4);
  for (int i = 0; i < 2; ++i)
    little.push_back(llm.submit(of_client("little", {3, 4, 5}, 20), expect_before(*much[11])));
  gate.open();
  for (const auto& generation : little) EXPECT_EQ(collect(*generation)[0].token_ids.size(), 20u);
  EXPECT_GT(llm.stats().preemptions, 0u);
  for (const auto& generation : much) EXPECT_EQ(collect(*generation)[0].token_ids, expected);
  expect_clean(llm);
}

TEST(LlmClients, BlocksAreTakenFromWhoHasTheMost) {
  LlmOptions options = tiny_options();
  options.engine.kv_blocks = 24;  // 192 positions: two sequences of full length
  options.speculate = Speculation::off;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::vector<std::shared_ptr<Generation>> much;
  LoopGate all_wait, gate;
  for (int i = 0; i < 6; ++i) {
    const std::function<void()> notify = i == 0 ? all_wait.notify() : i == 1 ? gate.notify(25) : nullptr;
    much.push_back(llm.submit(of_client("much", random_ids(60, llm.limits().vocab, i), 35), notify));
  }
  all_wait.open();
  gate.wait_held();
  EXPECT_GE(llm.stats().blocks_used, 20) << "of which the next one needs more than are left";
  const auto little =
      llm.submit(of_client("little", random_ids(40, llm.limits().vocab, 9), 3), expect_before(*much[5]));
  gate.open();
  EXPECT_EQ(collect(*little)[0].token_ids.size(), 3u);
  EXPECT_GT(llm.stats().preemptions, 0u);
  for (const auto& generation : much) EXPECT_EQ(collect(*generation)[0].token_ids.size(), 35u);
  expect_clean(llm);
}

TEST(LlmClients, TheyTakeTurnsInTheQueue) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 1;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::promise<void> one_runs, everybody_waits;
  const std::shared_future<void> begin = everybody_waits.get_future().share();
  std::vector<std::string> order;  // of first tokens; the step loop's alone
  std::vector<std::shared_ptr<Generation>> generations;
  const auto submit = [&](const std::string& name, int32_t priority = 0) {
    GenerationRequest request = of_client(name.substr(0, name.find(' ')), {1, 2, 3}, 5);
    request.priority = priority;
    generations.push_back(llm.submit(request, [&, name, begin, first = true]() mutable {
      if (!std::exchange(first, false)) return;
      if (order.empty()) one_runs.set_value();
      order.push_back(name);
      begin.wait();  // holds the step loop
    }));
  };
  submit("much 0");
  one_runs.get_future().wait();
  for (int i = 1; i < 5; ++i) submit("much " + std::to_string(i));
  for (int i = 0; i < 2; ++i) submit("little " + std::to_string(i));
  submit("urgent", -1);
  everybody_waits.set_value();
  for (const auto& generation : generations) collect(*generation);
  expect_clean(llm);
  // The first was running before the others came.
  EXPECT_EQ(order, (std::vector<std::string>{"much 0", "urgent", "little 0", "much 1", "little 1", "much 2", "much 3",
                                             "much 4"}));
}

TEST(LlmClients, NobodyFillsTheQueueForTheOthers) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 1;
  options.max_waiting = 15;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::vector<std::shared_ptr<Generation>> generations, others;
  LoopGate gate;
  for (int i = 0; i < 16; ++i)
    generations.push_back(llm.submit(of_client("much", {1, 2, 3}, 80), i == 0 ? gate.notify() : nullptr));
  gate.wait_held();
  EXPECT_THROW(llm.submit(of_client("much", {1, 2, 3}, 80)), Error);
  for (const char* client : {"b", "c"}) others.push_back(llm.submit(of_client(client, {1, 2, 3}, 2)));
  gate.open();
  for (const auto& generation : others) EXPECT_EQ(collect(*generation)[0].token_ids.size(), 2u);
  for (const auto& generation : generations) generation->cancel();
  for (const auto& generation : generations) collect(*generation);
  EXPECT_EQ(answer(llm, of_client("much", {1, 2, 3}, 2))[0].token_ids.size(), 2u);
  expect_clean(llm);
}

TEST(LlmClients, NobodyFillsTheMemoryForTheOthers) {
  LlmOptions options = tiny_options();
  options.engine.max_seqs = 1;
  options.host_budget = 200'000;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::vector<std::shared_ptr<Generation>> generations;
  LoopGate gate;
  try {
    for (int i = 0; i < 1000; ++i) {
      GenerationRequest request = of_client("much", {1, 2, 3}, 80);
      request.logprobs = 5;
      generations.push_back(llm.submit(request, i == 0 ? gate.notify() : nullptr));
    }
    FAIL() << "the memory has no end";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::overloaded);
  }
  gate.open();
  EXPECT_GT(generations.size(), 5u);
  EXPECT_EQ(answer(llm, of_client("little", {1, 2, 3}, 2))[0].token_ids.size(), 2u);
  for (const auto& generation : generations) generation->cancel();
  for (const auto& generation : generations) collect(*generation);
  expect_clean(llm);
}

TEST(LlmClients, PromptsMeetInTheCacheUnderOneSaltOnly) {
  LlmOptions options = tiny_options();  // blocks of 8
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = random_ids(60, llm.limits().vocab, 1);
  const auto cached = [&](const std::string& salt, int64_t shared = 0) {
    GenerationRequest request = greedy(prompt, 2);
    request.cache_salt = salt;
    request.shared_tokens = shared;
    const std::shared_ptr<Generation> generation = llm.submit(request);
    collect(*generation);
    return generation->summary().cached_tokens;
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("a"), 56);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached(""), 56);
  EXPECT_EQ(cached("c", 30), 24) << "what is shared was left there by somebody without a salt";
  EXPECT_EQ(cached("c", 30), 56);
  EXPECT_EQ(cached("d", 30), 24) << "and no more than that is found of another's";
  EXPECT_EQ(cached("d", 1000), 56) << "all of it is shared";
  expect_clean(llm);
}

}  // namespace
}  // namespace ingot::testing
