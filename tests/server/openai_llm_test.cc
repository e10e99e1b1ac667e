// The API over a real Llm: a tiny checkpoint with a tokenizer made for it.
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "engine/sequences.h"
#include "orchestrator/llm_rig.h"
#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

class OpenaiLlm : public ::testing::Test {
 protected:
  void start(int32_t max_waiting = 1024, int32_t max_seqs = 16) {
    LlmOptions options;
    options.engine.model = ingot::testing::fixture_model("llama-bf16-tied");
    options.engine.threads = 1;
    options.engine.max_seqs = max_seqs;
    options.engine.block_size = 8;
    options.engine.kv_blocks = 128;
    options.engine.max_model_len = 128;
    options.engine.max_step_tokens = 64;
    options.max_waiting = max_waiting;
    llm_ = std::make_unique<Llm>(Engine::load(options.engine), tiny_tokenizer(), options);
    ASSERT_EQ(llm_->limits().vocab, kVocab);
    api_ = openai::make_api(*llm_, {.served_names = {"tiny"}, .version = "1"});
  }

  void TearDown() override {
    api_ = nullptr;
    EXPECT_TRUE(eventually([&] { return llm_->idle(); }));
    for (const std::string& fault : llm_->check_integrity()) ADD_FAILURE() << fault;
    EXPECT_EQ(llm_->stats().blocks_used, 0);
  }

  std::shared_ptr<FakeExchange> send(const char* path, const Json& body) {
    auto exchange = std::make_shared<FakeExchange>("POST", path, body.dump());
    api_->handle(exchange);
    return exchange;
  }
  Json ask(const char* path, Json body) {
    body["stream"] = false;
    const HttpReply reply = send(path, body)->wait();
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body);
  }
  // The same request streamed: text, finish reason and logprobs of each choice put together again.
  struct Streamed {
    std::map<int, std::string> text, finish;
    std::map<int, Json> tokens;
    Json usage;
  };
  Streamed stream(const char* path, Json body) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    Streamed streamed;
    const std::vector<Json> events = parse_events(send(path, body)->wait().body);
    EXPECT_EQ(events.back(), "[DONE]");
    for (const Json& event : events) {
      if (!event.is_object()) continue;
      EXPECT_FALSE(event.contains("error")) << event.dump();
      if (event["usage"].is_object()) streamed.usage = event["usage"];
      for (const Json& choice : event["choices"]) {
        const int index = choice["index"];
        streamed.text[index] += path == kChat ? choice["delta"].value("content", "") : choice.value("text", "");
        if (choice["finish_reason"].is_string()) streamed.finish[index] += choice["finish_reason"];
        if (choice["logprobs"].is_null()) continue;
        Json& tokens = streamed.tokens[index];
        for (const Json& token : choice["logprobs"][path == kChat ? "content" : "tokens"]) tokens.push_back(token);
      }
    }
    return streamed;
  }

  std::unique_ptr<Llm> llm_;
  std::shared_ptr<Api> api_;
};

Json chat_body(const std::string& text, Json more) {
  Json body = {{"messages", {{{"role", "user"}, {"content", text}}}}, {"max_tokens", 24}};
  body.update(more);
  return body;
}

TEST_F(OpenaiLlm, StreamingEqualsNotStreaming) {
  start();
  const Json variants[] = {{{"temperature", 0}},
                           {{"temperature", 0}, {"ignore_eos", true}, {"max_tokens", 60}},
                           {{"seed", 7}, {"n", 3}},
                           {{"seed", 9}, {"top_k", 20}, {"repetition_penalty", 1.2}, {"min_tokens", 5}},
                           {{"temperature", 0}, {"logprobs", true}, {"top_logprobs", 3}},
                           {{"use_beam_search", true}, {"n", 2}, {"best_of", 4}}};
  for (const Json& variant : variants) {
    const Json body = chat_body("hello there", variant);
    const Json whole = ask(kChat, body);
    const Streamed streamed = stream(kChat, body);
    ASSERT_EQ(whole["choices"].size(), streamed.text.size()) << variant.dump();
    for (const Json& choice : whole["choices"]) {
      const int index = choice["index"];
      EXPECT_EQ(choice["message"]["content"], streamed.text.at(index)) << variant.dump();
      EXPECT_EQ(choice["finish_reason"], streamed.finish.at(index)) << variant.dump();
      if (!choice["logprobs"].is_null()) {
        EXPECT_EQ(choice["logprobs"]["content"].dump(), streamed.tokens.at(index).dump());
      }
    }
    EXPECT_EQ(whole["usage"]["completion_tokens"], streamed.usage["completion_tokens"]) << variant.dump();
  }
}

TEST_F(OpenaiLlm, PromptsTimesChoices) {
  start();
  const Json both = ask(kText, {{"prompt", {"hello", "other"}}, {"n", 2}, {"seed", 3}, {"max_tokens", 8}});
  ASSERT_EQ(both["choices"].size(), 4u);
  for (int p = 0; p < 2; ++p) {
    const Json one = ask(kText, {{"prompt", p == 0 ? "hello" : "other"}, {"n", 2}, {"seed", 3}, {"max_tokens", 8}});
    for (int c = 0; c < 2; ++c) {
      EXPECT_EQ(both["choices"][2 * p + c]["index"], 2 * p + c);
      EXPECT_EQ(both["choices"][2 * p + c]["text"], one["choices"][c]["text"]);
    }
  }
}

TEST_F(OpenaiLlm, TextAndItsTokensAreOnePrompt) {
  start();
  const Json text = ask(kText, {{"prompt", "hello"}, {"temperature", 0}});
  const Json ids = ask(kText, {{"prompt", {256, 262}}, {"temperature", 0}});
  EXPECT_EQ(text["choices"][0]["text"], ids["choices"][0]["text"]);
  EXPECT_EQ(text["usage"]["completion_tokens"], 16);
}

TEST_F(OpenaiLlm, StopString) {
  start();
  const Json free = ask(kText, {{"prompt", "hello"}, {"temperature", 0}, {"max_tokens", 40}, {"ignore_eos", true}});
  const std::string text = free["choices"][0]["text"];
  ASSERT_GT(text.size(), 8u);
  // A piece of the answer that is whole characters.
  size_t at = text.size() / 2;
  while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
  size_t end = at + 2;
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  const std::string stop = text.substr(at, end - at);
  const Json body = {{"prompt", "hello"}, {"temperature", 0}, {"max_tokens", 40}, {"ignore_eos", true}, {"stop", stop}};
  const Json stopped = ask(kText, body);
  EXPECT_EQ(stopped["choices"][0]["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], stop);
  EXPECT_EQ(stream(kText, body).text.at(0), text.substr(0, text.find(stop)));
}

TEST_F(OpenaiLlm, EchoWithLogprobs) {
  start();
  const Json json =
      ask(kText, {{"prompt", "hello you"}, {"temperature", 0}, {"max_tokens", 3}, {"echo", true}, {"logprobs", 2}});
  const Json& choice = json["choices"][0];
  const std::string text = choice["text"];
  EXPECT_EQ(text.substr(0, 9), "hello you");
  const Json& logprobs = choice["logprobs"];
  const size_t prompt = 6;  // <s> hello ␣ y o u
  ASSERT_EQ(logprobs["tokens"].size(), prompt + 3);
  EXPECT_EQ(logprobs["token_logprobs"].size(), prompt + 3);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  for (size_t i = 1; i < prompt + 3; ++i) {
    EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
    EXPECT_GE(logprobs["top_logprobs"][i].size(), 2u);
    EXPECT_LE(logprobs["top_logprobs"][i].size(), 3u);
    EXPECT_EQ(logprobs["top_logprobs"][i][logprobs["tokens"][i].get<std::string>()], logprobs["token_logprobs"][i]);
  }
  EXPECT_EQ(logprobs["text_offset"][1], 0);
  EXPECT_EQ(logprobs["text_offset"][2], 5);
  EXPECT_EQ(logprobs["text_offset"][prompt], 9);
  // The greedy choice is the most likely token.
  for (size_t i = prompt; i < prompt + 3; ++i)
    for (const auto& [token, logprob] : logprobs["top_logprobs"][i].items())
      EXPECT_LE(logprob.get<double>(), logprobs["token_logprobs"][i].get<double>()) << token;

  // The prompt's scores do not depend on what follows, nor on being asked for alone or as prompt_logprobs.
  const Json alone = ask(kText, {{"prompt", "hello you"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 2}});
  EXPECT_EQ(alone["choices"][0]["text"], "hello you");
  EXPECT_EQ(alone["usage"]["completion_tokens"], 0);
  ASSERT_EQ(alone["choices"][0]["logprobs"]["token_logprobs"].size(), prompt);
  const Json plain = ask(kText, {{"prompt", "hello you"}, {"max_tokens", 1}, {"prompt_logprobs", 0}});
  for (size_t i = 1; i < prompt; ++i) {
    EXPECT_EQ(alone["choices"][0]["logprobs"]["token_logprobs"][i], logprobs["token_logprobs"][i]);
    const int32_t id = i == 1 ? 262 : static_cast<unsigned char>("hello you"[i + 3]);
    EXPECT_EQ(plain["choices"][0]["prompt_logprobs"][i][std::to_string(id)]["logprob"], logprobs["token_logprobs"][i]);
  }
  const Streamed streamed =
      stream(kText, {{"prompt", "hello you"}, {"temperature", 0}, {"max_tokens", 3}, {"echo", true}, {"logprobs", 2}});
  EXPECT_EQ(streamed.text.at(0), text);
  EXPECT_EQ(streamed.tokens.at(0).dump(), logprobs["tokens"].dump());
}

TEST_F(OpenaiLlm, CachedTokens) {
  start();
  const Json body = {{"prompt", std::vector<int>(40, 'a')}, {"max_tokens", 2}};
  EXPECT_EQ(ask(kText, body)["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(ask(kText, body)["usage"]["prompt_tokens_details"]["cached_tokens"],
            32);  // whole blocks before the last token
  EXPECT_EQ(stream(kText, body).usage["prompt_tokens_details"]["cached_tokens"], 32);
}

TEST_F(OpenaiLlm, LogitBiasAndTokenListsDecideTheAnswer) {
  start();
  const Json forced =
      ask(kText, {{"prompt", "a"}, {"temperature", 0}, {"max_tokens", 4}, {"logit_bias", {{"120", 100}}}});
  EXPECT_EQ(forced["choices"][0]["text"], "xxxx");
  const Json allowed = ask(kText, {{"prompt", "a"}, {"max_tokens", 4}, {"allowed_token_ids", {121}}});
  EXPECT_EQ(allowed["choices"][0]["text"], "yyyy");
  const Json stopped =
      ask(kText, {{"prompt", "a"}, {"max_tokens", 4}, {"allowed_token_ids", {121}}, {"stop_token_ids", {121}}});
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], 121);
}

TEST_F(OpenaiLlm, RefusalsOfTheOrchestratorNameTheParameter) {
  start();
  const HttpReply reply = send(kText, {{"prompt", "a"}, {"use_beam_search", true}, {"n", 2}, {"top_k", 5}})->wait();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(Json::parse(reply.body)["error"]["param"], "top_k") << reply.body;
  const HttpReply wide = send(kText, {{"prompt", "a"}, {"n", 17}})->wait();
  EXPECT_EQ(wide.status, 400);
  EXPECT_EQ(Json::parse(wide.body)["error"]["param"], "n") << wide.body;
}

TEST_F(OpenaiLlm, OverloadIs503WithRetryAfter) {
  start(0, 1);
  // The only place is taken by hand: an answer may be over before the next request comes.
  ingot::testing::LoopGate gate;
  const auto first = llm_->submit(ingot::testing::greedy({1, 2, 3}, 100), gate.notify());
  gate.wait_held();
  {
    const HttpReply reply = send(kText, {{"prompt", "b"}, {"max_tokens", 120}, {"ignore_eos", true}})->wait();
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "overloaded");
    bool has = false;
    for (const auto& [name, value] : reply.headers) has |= name == "Retry-After" && std::stoi(value) >= 1;
    EXPECT_TRUE(has);
  }
  gate.open();
  EXPECT_EQ(ingot::testing::collect(*first)[0].token_ids.size(), 100u);
  EXPECT_EQ(ask(kText, {{"prompt", "b"}, {"max_tokens", 5}, {"ignore_eos", true}})["usage"]["completion_tokens"], 5);
}

TEST_F(OpenaiLlm, DisconnectFreesTheBlocks) {
  start();
  // Once each way; again where this thread was held up and everything was said before the client left.
  for (int round = 0; round < 2 || (round < 40 && llm_->stats().finished_abort == 0); ++round) {
    const bool streamed = round % 2 == 0;
    const auto exchange = send(kText, {{"prompt", std::vector<int>(60, 'a')},
                                       {"max_tokens", 60},
                                       {"n", 4},
                                       {"ignore_eos", true},
                                       {"stream", streamed}});
    if (streamed) exchange->pull_some();
    exchange->disconnect();
    EXPECT_TRUE(eventually([&] { return llm_->idle() && exchange.use_count() == 1; }));
  }
  EXPECT_GE(llm_->stats().finished_abort, 1u);
}

TEST_F(OpenaiLlm, DrainFinishesWhatRuns) {
  start();
  const auto running = send(kText, {{"prompt", "a"}, {"max_tokens", 60}, {"ignore_eos", true}, {"stream", true}});
  api_->drain();
  EXPECT_EQ(send(kText, {{"prompt", "a"}})->wait().status, 503);
  EXPECT_EQ(parse_events(running->wait().body).back(), "[DONE]");
}

TEST_F(OpenaiLlm, MetricsCountWhatRan) {
  start();
  ask(kText, {{"prompt", "hello"}, {"max_tokens", 5}, {"ignore_eos", true}});
  auto exchange = std::make_shared<FakeExchange>("GET", "/metrics");
  EXPECT_TRUE(eventually([&] { return llm_->idle(); }));
  api_->handle(exchange);
  const std::string text = exchange->wait().body;
  for (const char* line :
       {"vllm:prompt_tokens_total{model_name=\"tiny\"} 2\n", "vllm:generation_tokens_total{model_name=\"tiny\"} 5\n",
        "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"length\"} 1\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST_F(OpenaiLlm, ManyClientsAtOnce) {
  start();
  const Json expected = ask(kText, {{"prompt", "hello"}, {"temperature", 0}, {"max_tokens", 20}});
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t)
    clients.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        if ((t + i) % 5 == 0) {
          const auto exchange = send(kText, {{"prompt", "hello"}, {"max_tokens", 50}, {"stream", i % 2 == 0}});
          exchange->disconnect();
        } else if (i % 2 == 0) {
          EXPECT_EQ(Json(stream(kText, {{"prompt", "hello"}, {"temperature", 0}, {"max_tokens", 20}}).text.at(0)),
                    expected["choices"][0]["text"]);
        } else {
          EXPECT_EQ(ask(kText, {{"prompt", "hello"}, {"temperature", 0}, {"max_tokens", 20}})["choices"].dump(),
                    expected["choices"].dump());
        }
      }
    });
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace ingot::server::testing
