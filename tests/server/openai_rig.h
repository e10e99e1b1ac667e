#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eventually.h"
#include "ingot/tokenizer.h"
#include "server/openai/api.h"

// Stand-ins for the transport and the model, so that the API can be driven without a socket.
namespace ingot::server::testing {

using Json = nlohmann::ordered_json;
using openai::Api;
using openai::ApiOptions;
using test::eventually;

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kText = "/v1/completions";

// 331 tokens, as the fixture llama-bf16-tied has: 0..255 are the bytes, 256 <s>, 257 <|im_start|>, 258 <|im_end|> (the
// end token), 259 "he", 260 "ll", 261 "hell", 262 "hello", 263 the first two bytes of a three-byte character, then
// "w264" ...
inline constexpr int32_t kVocab = 331;
inline constexpr int32_t kEnd = 258;
inline constexpr int32_t kHalfCharacter = 263;  // with byte 0xac: the euro sign
// With more: 264 <fim_prefix>, 265 <fim_suffix>, 266 <fim_middle>, 267 <repo_name>, 268 <file_sep>; 269 "yes", 270
// "no".
std::shared_ptr<const Tokenizer> tiny_tokenizer(bool with_more = false);

class FakeExchange : public Exchange {
 public:
  FakeExchange(std::string method, std::string path, std::string body = "",
               std::vector<std::pair<std::string, std::string>> headers = {{"content-type", "application/json"}});

  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override;
  void stream(HttpReply head, std::shared_ptr<BodySource> body) override;
  void wake() override;
  void on_disconnect(std::function<void()> callback) override;

  // Waits for the whole answer; a streamed body is pulled to its end.
  HttpReply wait();
  // Waits for the head of a stream, and for something to pull; returns what one or more pulls gave.
  std::string pull_some();
  bool pull(std::string& out);  // once, when woken; possibly nothing. True at the end
  void disconnect();            // before the API has it, too
  void come_from(const std::string& client, const std::string& tenant);
  void ask_for(const std::string& query) { request_.query = query; }  // behind the path
  int answers() const { return answers_; }

 private:
  HttpRequest request_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<HttpReply> head_;
  std::shared_ptr<BodySource> source_;
  std::function<void()> callback_;
  bool woken_ = false;
  bool ended_ = false;
  bool gone_ = false;
  int answers_ = 0;
};

// A generation whose course the test decides.
class ScriptedGeneration : public Generation {
 public:
  ScriptedGeneration(GenerationRequest given, std::function<void()> notify);

  const std::string& id() const override { return request.id; }
  std::vector<ChoiceDelta> take() override;
  bool done() const override;
  bool wait(std::chrono::milliseconds) override { return true; }
  void cancel() override;
  GenerationSummary summary() const override;
  std::vector<TokenScore> prompt_scores() const override;

  void push(ChoiceDelta delta);                                                           // and notifies
  void push_text(const std::string& text, int32_t choice = 0);                            // one byte token a byte
  void read_prompt(GenerationSummary so_far);                                             // and notifies
  void finish(FinishReason reason = FinishReason::stop, GenerationSummary summary = {});  // every choice
  void finish_quietly(GenerationSummary summary);  // done, whatever the choices said

  const GenerationRequest request;
  std::vector<TokenScore> scores_of_prompt;
  bool cancelled = false;

 private:
  const std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::vector<ChoiceDelta> ready_;
  GenerationSummary summary_;
  bool done_ = false;
};

class ScriptedGenerator : public openai::Generator {
 public:
  explicit ScriptedGenerator(bool with_tokenizer = true);

  std::shared_ptr<Generation> submit(GenerationRequest request, std::function<void()> notify) override;
  void drain() override { drained = true; }
  double retry_after_s() const override { return 6.2; }
  LlmStats stats() const override { return stats_now; }
  const EngineLimits& limits() const override { return limits_now; }
  const Tokenizer* tokenizer() const override { return tokenizer_now.get(); }
  const ModelInfo& model_info() const override { return model_now; }
  std::string device_description() const override { return "a \"fake\"\\device"; }
  std::vector<std::string> check_integrity() override { return {"block 3: \"lost\""}; }

  std::shared_ptr<ScriptedGeneration> last() const { return generations.back(); }

  std::vector<std::shared_ptr<ScriptedGeneration>> generations;
  std::function<void(ScriptedGeneration&)> on_submit;  // e.g. answers at once
  std::function<void()> refuse;                        // throws
  LlmStats stats_now;
  EngineLimits limits_now;
  ModelInfo model_now;
  bool drained = false;
  std::shared_ptr<const Tokenizer> tokenizer_now;
};

// An API over a ScriptedGenerator, with its log.
struct Rig {
  explicit Rig(ApiOptions options = {}, bool with_tokenizer = true);

  std::shared_ptr<FakeExchange> send(const std::string& method, const std::string& path, const std::string& body = "");
  HttpReply ask(const std::string& method, const std::string& path, const std::string& body = "");
  HttpReply post(const std::string& path, const Json& body) { return ask("POST", path, body.dump()); }
  std::vector<std::string> log_lines() const;

  std::shared_ptr<ScriptedGenerator> generator;
  std::shared_ptr<std::vector<std::string>> lines = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<std::mutex> lines_mutex = std::make_shared<std::mutex>();
  std::shared_ptr<Api> api;
};

// The JSON payloads of an event stream; fails the test on anything that is not `data: ...` and a blank line. [DONE] is
// the string "[DONE]".
std::vector<Json> parse_events(const std::string& body);

}  // namespace ingot::server::testing
