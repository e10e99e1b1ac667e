// Many requests at once: every answer is the one the request gets alone, and nothing is left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

struct Case {
  GenerationRequest request;
  std::vector<std::vector<int32_t>> expected;
};

// Requests of every kind, with prompts that often share a beginning.
std::vector<Case> make_cases(const LlmOptions& options, int count) {
  LlmOptions alone_options = options;
  alone_options.engine.kv_blocks = 256;
  alone_options.prefix_caching = false;
  alone_options.overlap = false;
  Llm alone(Engine::load(alone_options.engine), nullptr, alone_options);
  std::mt19937 random(11);
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> prompt = random_ids(random() % 3 * 9, alone.limits().vocab, random() % 2);
    const std::vector<int32_t> rest = random_ids(1 + random() % 40, alone.limits().vocab, random() % 5);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    GenerationRequest request = greedy(prompt, 1 + random() % 25);
    if (random() % 2 == 0) request.sampling.temperature = 1.0f;
    if (random() % 3 == 0) request.sampling.repetition_penalty = 1.3f;
    if (random() % 3 == 0) request.sampling.min_tokens = 3;
    if (random() % 4 == 0) request.n = 3;
    if (random() % 5 == 0) request.prompt_logprobs = 1;
    request.sampling.seed = random();
    request.sampling.stop_token_ids = random_ids(3, alone.limits().vocab, random());
    Case c{request, {}};
    for (const Choice& choice : answer(alone, request)) c.expected.push_back(choice.token_ids);
    cases.push_back(std::move(c));
  }
  return cases;
}

void run_crowd(const LlmOptions& options, int clients, int rounds, bool expect_preemptions) {
  const std::vector<Case> cases = make_cases(options, 40);
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; ++client)
    threads.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int round = 0; round < rounds; ++round) {
        const Case& c = cases[random() % cases.size()];
        GenerationRequest request = c.request;
        request.client = "client " + std::to_string(client % 4);
        if (client % 3 == 0) request.cache_salt = request.client;
        const std::shared_ptr<Generation> generation = llm.submit(request);
        const bool leave = random() % 6 == 0;
        if (leave) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
          generation->cancel();
        }
        const std::vector<Choice> choices = collect(*generation);
        if (choices.size() != c.expected.size()) ++wrong;
        for (size_t i = 0; i < choices.size(); ++i) {
          const std::vector<int32_t>& got = choices[i].token_ids;
          const bool cut = choices[i].finish == FinishReason::cancelled;
          const bool same =
              cut ? got.size() <= c.expected[i].size() && std::equal(got.begin(), got.end(), c.expected[i].begin())
                  : got == c.expected[i];
          if (!same || (cut && !leave)) ++wrong;
        }
        if (round % 10 == 0 && !llm.check_integrity().empty()) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  if (expect_preemptions) {
    EXPECT_GT(llm.stats().preemptions, 0u);
  }
  expect_clean(llm);
}

// A reader may ask for what is there so far while the step loop writes it.
TEST(LlmLoad, ReadersAskWhileItIsWritten) {
  LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  for (int round = 0; round < 5; ++round) {
    GenerationRequest request = greedy(prompt_of(llm, 40, static_cast<unsigned>(round)), 4);
    request.prompt_logprobs = 1;
    const std::shared_ptr<Generation> generation = llm.submit(request);
    size_t scores = 0;
    while (!generation->done()) {
      scores = std::max(scores, generation->prompt_scores().size());
      EXPECT_LE(generation->summary().completion_tokens, 4);
    }
    EXPECT_EQ(generation->prompt_scores().size(), 40u);
    EXPECT_LE(scores, 40u);
  }
  expect_clean(llm);
}

// One tokenizer serves all requests; what it remembers of words is shared.
TEST(LlmLoad, ManyThreadsTokenizeAtOnce) {
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(std::string(INGOT_FIXTURES) + "/tokenizers/llama3");
  const auto text = [](int i) { return "word" + std::to_string(i) + " and " + std::to_string(i * 7919) + " more"; };
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 50; ++i) alone.push_back(tokenizer->encode(text(i)));
  std::vector<std::thread> threads;
  std::atomic<int> different = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) different += tokenizer->encode(text((i + 13 * t) % 50)) != alone[(i + 13 * t) % 50];
      for (int i = 50; i < 100; ++i) tokenizer->encode(text(i));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

TEST(LlmLoad, CrowdGetsTheAnswersOfSingleRequests) { run_crowd(tiny_options(), 12, 25, false); }

TEST(LlmLoad, CrowdWithConstantPreemption) {
  LlmOptions options = tiny_options();
  options.engine.kv_blocks = 14;
  run_crowd(options, 12, 25, true);
}

TEST(LlmLoad, CrowdWithConstantPreemptionAndNoCache) {
  LlmOptions options = tiny_options();
  options.engine.kv_blocks = 14;
  options.prefix_caching = false;
  run_crowd(options, 8, 15, true);
}

TEST(LlmLoad, CrowdWithoutOverlap) {
  LlmOptions options = tiny_options();
  options.overlap = false;
  options.engine.kv_blocks = 20;
  run_crowd(options, 8, 15, false);
}

}  // namespace
}  // namespace ingot::testing
