#include "server/openai_rig.h"

#include "text/byte_alphabet.h"
#include "text/tokenizer_data.h"

namespace ingot::server::testing {
namespace {

constexpr const char* kTemplate =
    "{% if greeting %}{{ greeting }}\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'alien' %}{{ raise_exception('no aliens: ' + m.content) }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace

std::shared_ptr<const Tokenizer> tiny_tokenizer(bool with_more) {
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  TokenizerData data;
  data.source = "tiny";
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(alphabet.encode(std::string(1, static_cast<char>(byte))));
  data.tokens.insert(data.tokens.end(), {"<s>", "<|im_start|>", "<|im_end|>", "he", "ll", "hell", "hello"});
  data.tokens.push_back(alphabet.encode("\xe2\x82"));
  while (data.tokens.size() < kVocab) data.tokens.push_back("w" + std::to_string(data.tokens.size()));
  const char* kMore[] = {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>", "yes", "no"};
  if (with_more) std::copy(std::begin(kMore), std::end(kMore), data.tokens.begin() + 264);
  data.in_model.assign(data.tokens.size(), 1);
  data.merges = {{'h', 'e', 259, 0}, {'l', 'l', 260, 1}, {259, 260, 261, 2}, {261, 'o', 262, 3}};
  for (int32_t id = 256; id < (with_more ? 269 : 259); ++id) {
    if (id >= 259 && id < 264) continue;
    data.in_model[id] = 0;
    data.added.push_back({.id = id, .content = data.tokens[id], .special = true});
  }
  data.byte_level = true;
  data.pre_tokenizer = {{.kind = PreTokenizerStep::Kind::byte_level}};
  data.decoder = {{.kind = DecoderStep::Kind::byte_level}};
  data.prefix = {256};
  data.bos_id = 256;
  data.eos_id = kEnd;
  data.end_ids = {kEnd};
  data.bos_token = "<s>";
  data.eos_token = "<|im_end|>";
  data.chat_template = kTemplate;
  return std::make_shared<const Tokenizer>(std::move(data));
}

FakeExchange::FakeExchange(std::string method, std::string path, std::string body,
                           std::vector<std::pair<std::string, std::string>> headers) {
  request_.method = std::move(method);
  request_.path = std::move(path);
  request_.headers = std::move(headers);
  request_.body = std::move(body);
  request_.id = "req-1";
  request_.peer = "127.0.0.1:5000";
}

void FakeExchange::reply(HttpReply reply) {
  const std::lock_guard lock(mutex_);
  ++answers_;
  head_ = std::move(reply);
  ended_ = true;
  changed_.notify_all();
}

void FakeExchange::stream(HttpReply head, std::shared_ptr<BodySource> body) {
  const std::lock_guard lock(mutex_);
  ++answers_;
  head_ = std::move(head);
  source_ = std::move(body);
  changed_.notify_all();
}

void FakeExchange::wake() {
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(source_ || ended_ || gone_) << "woken before stream()";
  woken_ = true;
  changed_.notify_all();
}

void FakeExchange::on_disconnect(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    callback_ = callback;
    if (!gone_) return;
  }
  callback();
}

void FakeExchange::come_from(const std::string& client, const std::string& tenant) {
  request_.client = client;
  request_.tenant = tenant;
}

bool FakeExchange::pull(std::string& out) {
  std::shared_ptr<BodySource> source;
  {
    std::unique_lock lock(mutex_);
    const bool in_time =
        changed_.wait_for(lock, std::chrono::seconds(30), [this] { return ended_ || (source_ && woken_); });
    EXPECT_TRUE(in_time) << "no answer in time";
    if (ended_ || !in_time) return true;
    woken_ = false;
    source = source_;
  }
  if (!source->pull(out)) return false;
  const std::lock_guard lock(mutex_);
  ended_ = true;
  source_ = nullptr;
  return true;
}

HttpReply FakeExchange::wait() {
  std::string body;
  while (!pull(body)) {
  }
  const std::lock_guard lock(mutex_);
  if (!head_) return {.status = 0};
  HttpReply reply = *head_;
  reply.body += body;
  return reply;
}

std::string FakeExchange::pull_some() {
  std::string out;
  while (out.empty() && !pull(out)) {
  }
  return out;
}

void FakeExchange::disconnect() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    callback = std::exchange(callback_, nullptr);
    source_ = nullptr;
  }
  if (callback) callback();
}

ScriptedGeneration::ScriptedGeneration(GenerationRequest given, std::function<void()> notify)
    : request(std::move(given)), notify_(std::move(notify)) {
  summary_.prompt_tokens = static_cast<int64_t>(request.prompt.size());
}

std::vector<ChoiceDelta> ScriptedGeneration::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ready_, {});
}

bool ScriptedGeneration::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void ScriptedGeneration::cancel() {
  {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    cancelled = true;
  }
  finish(FinishReason::cancelled);
}

GenerationSummary ScriptedGeneration::summary() const {
  const std::lock_guard lock(mutex_);
  return summary_;
}

std::vector<TokenScore> ScriptedGeneration::prompt_scores() const { return scores_of_prompt; }

void ScriptedGeneration::push(ChoiceDelta delta) {
  {
    const std::lock_guard lock(mutex_);
    summary_.completion_tokens += static_cast<int64_t>(delta.token_ids.size());
    ChoiceDelta* same = nullptr;
    for (ChoiceDelta& ready : ready_)
      if (ready.index == delta.index) same = &ready;
    if (same == nullptr) {
      ready_.push_back(std::move(delta));
    } else {
      same->text += delta.text;
      same->token_ids.insert(same->token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      same->scores.insert(same->scores.end(), delta.scores.begin(), delta.scores.end());
      same->finish = delta.finish;
      same->stop_reason = delta.stop_reason;
    }
  }
  if (notify_) notify_();
}

void ScriptedGeneration::push_text(const std::string& text, int32_t choice) {
  ChoiceDelta delta{.index = choice, .text = text};
  for (const char c : text) {
    delta.token_ids.push_back(static_cast<unsigned char>(c));
    if (request.logprobs >= 0)
      delta.scores.push_back(
          {.token = delta.token_ids.back(), .logprob = -0.5f, .rank = 1, .top = {{delta.token_ids.back(), -0.5f}}});
  }
  push(std::move(delta));
}

void ScriptedGeneration::read_prompt(GenerationSummary so_far) {
  {
    const std::lock_guard lock(mutex_);
    so_far.prompt_tokens = summary_.prompt_tokens;
    summary_ = std::move(so_far);
  }
  if (notify_) notify_();
}

void ScriptedGeneration::finish(FinishReason reason, GenerationSummary summary) {
  for (int32_t i = 0; i < request.n; ++i) push({.index = i, .finish = reason});
  finish_quietly(std::move(summary));
}

void ScriptedGeneration::finish_quietly(GenerationSummary summary) {
  {
    const std::lock_guard lock(mutex_);
    summary.prompt_tokens = summary_.prompt_tokens;
    summary.completion_tokens = summary_.completion_tokens;
    summary_ = std::move(summary);
    done_ = true;
  }
  if (notify_) notify_();
}

ScriptedGenerator::ScriptedGenerator(bool with_tokenizer) : tokenizer_now(with_tokenizer ? tiny_tokenizer() : nullptr) {
  limits_now.vocab = kVocab;
  limits_now.max_model_len = 128;
  limits_now.max_top = 32;
  limits_now.max_seqs = 64;
  limits_now.block_size = 16;
  limits_now.num_blocks = 100;
}

std::shared_ptr<Generation> ScriptedGenerator::submit(GenerationRequest request, std::function<void()> notify) {
  if (refuse) refuse();
  auto generation = std::make_shared<ScriptedGeneration>(std::move(request), std::move(notify));
  generations.push_back(generation);
  if (on_submit) on_submit(*generation);
  return generation;
}

Rig::Rig(ApiOptions options, bool with_tokenizer) : generator(std::make_shared<ScriptedGenerator>(with_tokenizer)) {
  if (options.served_names.empty()) options.served_names = {"tiny", "also/tiny"};
  if (options.version.empty()) options.version = "1.2.3";
  options.clock = [] { return int64_t{1700000000}; };
  options.log = [lines = lines, mutex = lines_mutex](std::string_view line) {
    const std::lock_guard lock(*mutex);
    lines->emplace_back(line);
  };
  api = openai::make_api(std::move(options));
  api->attach(generator);
}

std::shared_ptr<FakeExchange> Rig::send(const std::string& method, const std::string& path, const std::string& body) {
  auto exchange = std::make_shared<FakeExchange>(method, path, body);
  api->handle(exchange);
  return exchange;
}

HttpReply Rig::ask(const std::string& method, const std::string& path, const std::string& body) {
  return send(method, path, body)->wait();
}

std::vector<std::string> Rig::log_lines() const {
  const std::lock_guard lock(*lines_mutex);
  return *lines;
}

std::vector<Json> parse_events(const std::string& body) {
  std::vector<Json> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
      ADD_FAILURE() << "not an event: " << body.substr(at);
      break;
    }
    const std::string data = body.substr(at + 6, end - at - 6);
    EXPECT_EQ(data.find('\n'), std::string::npos) << data;
    events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    at = end + 2;
  }
  return events;
}

}  // namespace ingot::server::testing
