// Paths, methods, models, errors of the orchestrator, draining, loading, and the log.
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

Json error_of(const HttpReply& reply) { return Json::parse(reply.body).at("error"); }

std::string header_of(const HttpReply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers)
    if (key == name) return value;
  return "";
}

TEST(OpenaiRouter, UnknownPath) {
  Rig rig;
  for (const char* path :
       {"/nothing", "/v1", "/v1/", "/v1/chat/completions/", "/v1/models2", "", "//", "/v1/completions/x", "/\n"}) {
    const HttpReply reply = rig.ask("GET", path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(error_of(reply)["type"], "invalid_request_error");
    EXPECT_EQ(error_of(reply)["code"], "not_found");
  }
}

TEST(OpenaiRouter, WrongMethod) {
  Rig rig;
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"})
    for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "BREW"}) {
      const HttpReply reply = rig.ask(method, path);
      EXPECT_EQ(reply.status, 405) << method << path;
      EXPECT_EQ(header_of(reply, "Allow"), "POST");
      EXPECT_EQ(error_of(reply)["code"], "method_not_allowed");
    }
  for (const char* path :
       {"/", "/live", "/health", "/ready", "/version", "/metrics", "/props", "/v1/models", "/v1/models/tiny"}) {
    const HttpReply reply = rig.ask("POST", path);
    EXPECT_EQ(reply.status, 405) << path;
    EXPECT_EQ(header_of(reply, "Allow"), "GET, HEAD");
  }
}

TEST(OpenaiRouter, TheMakersAdviceHoldsWhereARequestSaysNothing) {
  Rig rig;
  Json props = Json::parse(rig.ask("GET", "/props").body);
  EXPECT_EQ(props["default_generation_settings"]["temperature"], 1.0);
  EXPECT_EQ(props["chat_sampling"]["temperature"], 0.7);
  EXPECT_EQ(props["chat_sampling"]["top_p"], 0.95);

  rig.generator->model_now.sampling = {.temperature = 0.2f, .top_p = 0.9f, .top_k = 40};
  rig.api->attach(rig.generator);
  props = Json::parse(rig.ask("GET", "/props").body);
  for (const char* kind : {"default_generation_settings", "chat_sampling"}) {
    EXPECT_EQ(props[kind]["temperature"], 0.2);
    EXPECT_EQ(props[kind]["top_p"], 0.9);
    EXPECT_EQ(props[kind]["top_k"], 40);
  }
  rig.send("POST", "/v1/completions", R"({"prompt":[1,2]})");
  const SamplingParams silent = rig.generator->last()->request.sampling;
  EXPECT_EQ(silent.temperature, 0.2f);
  EXPECT_EQ(silent.top_p, 0.9f);
  EXPECT_EQ(silent.top_k, 40);
  rig.send("POST", "/v1/completions", R"({"prompt":[1,2],"temperature":1,"top_p":1,"top_k":0})");
  const SamplingParams asked = rig.generator->last()->request.sampling;
  EXPECT_EQ(asked.temperature, 1.0f);
  EXPECT_EQ(asked.top_p, 1.0f);
  EXPECT_EQ(asked.top_k, 0);
  rig.send("POST", "/v1/completions", R"({"prompt":[1,2],"use_beam_search":true,"n":2})");
  const SamplingParams beams = rig.generator->last()->request.sampling;
  EXPECT_EQ(beams.temperature, 0.0f);
  EXPECT_EQ(beams.top_p, 1.0f) << "advice is for draws";
}

TEST(OpenaiRouter, SmallEndpoints) {
  Rig rig({.web = {{"/", "text/html; charset=utf-8", "<html>"}}});
  for (const char* method : {"GET", "HEAD"}) {
    EXPECT_EQ(rig.ask(method, "/live").body, R"({"status":"alive"})");
    EXPECT_EQ(rig.ask(method, "/health").body, R"({"status":"ok"})");
    EXPECT_EQ(rig.ask(method, "/ready").body, R"({"status":"ready"})");
    EXPECT_EQ(rig.ask(method, "/version").body, R"({"version":"1.2.3"})");
    EXPECT_EQ(rig.ask(method, "/").body, "<html>");
  }
  EXPECT_EQ(rig.ask("GET", "/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(Rig().ask("GET", "/").status, 404);
}

TEST(OpenaiRouter, Models) {
  Rig rig;
  EXPECT_EQ(
      rig.ask("GET", "/v1/models").body,
      R"({"object":"list","data":[)"
      R"({"id":"tiny","object":"model","created":1700000000,"owned_by":"ingot","root":"tiny","parent":null,"max_model_len":128},)"
      R"({"id":"also/tiny","object":"model","created":1700000000,"owned_by":"ingot","root":"tiny","parent":null,"max_model_len":128}]})");
  EXPECT_EQ(Json::parse(rig.ask("GET", "/v1/models/also/tiny").body)["id"], "also/tiny");
  const HttpReply reply = rig.ask("GET", "/v1/models/other");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(error_of(reply)["code"], "model_not_found");
}

TEST(OpenaiRouter, ModelNamesInRequests) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  EXPECT_EQ(Json::parse(rig.post(kText, {{"prompt", "a"}}).body)["model"], "tiny");
  EXPECT_EQ(Json::parse(rig.post(kText, {{"prompt", "a"}, {"model", "also/tiny"}}).body)["model"], "also/tiny");
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const HttpReply reply = rig.post(path, {{"prompt", "a"}, {"model", "gpt-4"}});
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(
        error_of(reply).dump(),
        R"({"message":"the model `gpt-4` does not exist: this server has `tiny`","type":"invalid_request_error","param":"model","code":"model_not_found"})");
  }
  EXPECT_EQ(rig.post("/detokenize", {{"tokens", {1}}, {"model", "gpt-4"}}).status, 404);
}

TEST(OpenaiRouter, DefaultModelName) {
  EXPECT_EQ(openai::default_model_name("/a/b/SmolLM2-135M.Q4_1.gguf"), "SmolLM2-135M.Q4_1");
  EXPECT_EQ(openai::default_model_name("/a/Qwen2.5-0.5B"), "Qwen2.5-0.5B");
  EXPECT_EQ(openai::default_model_name("/a/Qwen2.5-0.5B/"), "Qwen2.5-0.5B");
  EXPECT_EQ(openai::default_model_name("/h/models--Qwen--Qwen2-0.5B/snapshots/c0ffee"), "Qwen/Qwen2-0.5B");
  EXPECT_EQ(openai::default_model_name("/h/models--Qwen--Qwen2-GGUF/snapshots/c0ffee/qwen2-q4_0.gguf"), "qwen2-q4_0");
  EXPECT_EQ(openai::default_model_name("/h/models--gpt2/snapshots/c0ffee"), "c0ffee");
}

TEST(OpenaiRouter, ContentType) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  const auto status = [&](std::vector<std::pair<std::string, std::string>> headers) {
    auto exchange = std::make_shared<FakeExchange>("POST", kText, R"({"prompt":"a"})", std::move(headers));
    rig.api->handle(exchange);
    return exchange->wait().status;
  };
  EXPECT_EQ(status({}), 415) << "a page elsewhere can send this without asking";
  EXPECT_EQ(status({{"content-type", "application/json"}}), 200);
  EXPECT_EQ(status({{"content-type", "Application/JSON ; charset=utf-8"}}), 200);
  EXPECT_EQ(status({{"content-type", "text/plain"}}), 415);
  EXPECT_EQ(status({{"content-type", "application/x-www-form-urlencoded"}}), 415);
}

TEST(OpenaiRouter, PromptOverTheContextHasBothNumbers) {
  Rig rig;
  const HttpReply reply = rig.post(kText, {{"prompt", std::vector<int>(128, 7)}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply).dump(),
            R"({"message":"prompt has 128 tokens, but the model's context holds 128, the answer included: shorten it",)"
            R"("type":"invalid_request_error","param":"prompt","code":"context_length_exceeded"})");
  EXPECT_EQ(error_of(rig.post(kText, {{"prompt", {"a", std::string(200, 'x')}}}))["param"], "prompt[1]");
  const HttpReply chat =
      rig.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", std::string(500, 'x')}}}}});
  EXPECT_EQ(error_of(chat)["code"], "context_length_exceeded");
  EXPECT_NE(std::string(error_of(chat)["message"]).find("519 tokens"), std::string::npos) << chat.body;
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  EXPECT_EQ(rig.post(kText, {{"prompt", std::vector<int>(127, 7)}}).status, 200);
  EXPECT_EQ(rig.post(kText, {{"prompt", std::vector<int>(128, 7)}, {"echo", true}, {"max_tokens", 0}}).status, 200);
  EXPECT_EQ(rig.post(kText, {{"prompt", ""}, {"add_special_tokens", false}}).status, 400);
}

TEST(OpenaiRouter, MaxTokensIsCutToTheContextAndTheServersLimit) {
  Rig rig({.max_tokens = 50});
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  rig.post(kText, {{"prompt", std::vector<int>(100, 7)}, {"max_tokens", 1000}});
  EXPECT_EQ(rig.generator->last()->request.max_tokens, 28);
  rig.post(kText, {{"prompt", {7}}, {"max_tokens", 1000}});
  EXPECT_EQ(rig.generator->last()->request.max_tokens, 50);
}

TEST(OpenaiRouter, Deadline) {
  Rig rig({.request_timeout = std::chrono::seconds(100)});
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(FinishReason::timeout); };
  const HttpReply reply = rig.post(kText, {{"prompt", "a"}});
  EXPECT_EQ(reply.status, 504);
  EXPECT_EQ(error_of(reply)["type"], "timeout_error");
  const auto deadline = rig.generator->last()->request.deadline;
  ASSERT_TRUE(deadline);
  const auto left = *deadline - std::chrono::steady_clock::now();
  EXPECT_GT(left, std::chrono::seconds(50));
  EXPECT_LT(left, std::chrono::seconds(101));
  Rig without;
  without.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  without.post(kText, {{"prompt", "a"}});
  EXPECT_FALSE(without.generator->last()->request.deadline);
}

TEST(OpenaiRouter, ErrorsOfTheOrchestrator) {
  const struct {
    ErrorKind kind;
    const char* message;
    int status;
    const char* code;
    Json param;
  } cases[] = {
      {ErrorKind::bad_call, "top_k cannot be combined with beam search", 400, "invalid_value", "top_k"},
      {ErrorKind::bad_call, "something else", 400, "invalid_value", nullptr},
      {ErrorKind::declined, "not here", 400, "unsupported_value", nullptr},
      {ErrorKind::overloaded, "too much", 503, "overloaded", nullptr},
      {ErrorKind::out_of_memory, "too much", 503, "overloaded", nullptr},
      {ErrorKind::device, "on fire", 500, "device_error", nullptr},
      {ErrorKind::internal, "a bug", 500, "internal_error", nullptr},
      {ErrorKind::io, "no disk", 500, "internal_error", nullptr},
  };
  for (const bool stream : {false, true})
    for (const auto& c : cases) {
      Rig rig;
      rig.generator->refuse = [&] {
        throw Error(c.kind, c.message, c.param.is_null() ? "" : c.param.get<std::string>());
      };
      const HttpReply reply = rig.post(kText, {{"prompt", "a"}, {"stream", stream}});
      EXPECT_EQ(reply.status, c.status);
      EXPECT_EQ(error_of(reply)["message"], c.message);
      EXPECT_EQ(error_of(reply)["code"], c.code);
      EXPECT_EQ(error_of(reply)["param"], c.param);
      EXPECT_EQ(error_of(reply)["type"], c.status == 400 ? "invalid_request_error" : "server_error");
      EXPECT_EQ(header_of(reply, "Retry-After"), c.status == 503 ? "7" : "");
      ASSERT_EQ(rig.log_lines().size(), 1u);
      EXPECT_NE(rig.log_lines()[0].find("error="), std::string::npos);
    }
}

TEST(OpenaiRouter, RefusalOfALaterPromptCancelsTheEarlier) {
  Rig rig;
  rig.generator->refuse = [&] {
    if (rig.generator->generations.size() == 2) throw Error(ErrorKind::overloaded, "full");
  };
  EXPECT_EQ(rig.post(kText, {{"prompt", {"a", "b", "c"}}}).status, 503);
  ASSERT_EQ(rig.generator->generations.size(), 2u);
  for (const auto& generation : rig.generator->generations) EXPECT_TRUE(generation->cancelled);
  EXPECT_EQ(rig.log_lines().size(), 1u);
}

TEST(OpenaiRouter, FailedGenerationIsA500) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("ab");
    generation.finish(FinishReason::error, {.error = "the step failed"});
  };
  const HttpReply reply = rig.post(kText, {{"prompt", "a"}});
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(error_of(reply)["message"], "the step failed");
}

TEST(OpenaiRouter, Draining) {
  Rig rig;
  const auto running = rig.send("POST", kText, R"({"prompt":"a"})");
  rig.api->drain();
  EXPECT_TRUE(rig.generator->drained);
  const HttpReply reply = rig.post(kText, {{"prompt", "a"}});
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(error_of(reply)["code"], "draining");
  EXPECT_EQ(header_of(reply, "Retry-After"), "7");
  EXPECT_EQ(rig.ask("GET", "/ready").status, 503);
  EXPECT_EQ(rig.ask("GET", "/health").status, 200);
  EXPECT_EQ(rig.ask("GET", "/v1/models").status, 200);
  rig.generator->last()->finish();
  EXPECT_EQ(running->wait().status, 200);
}

TEST(OpenaiRouter, HealthTellsOfADeviceThatFailsStepAfterStep) {
  Rig rig;
  rig.generator->stats_now.failed_in_a_row = 2;
  rig.generator->stats_now.failure = "gpu: lost";
  EXPECT_EQ(rig.ask("GET", "/health").status, 200) << "one that may recover";
  rig.generator->stats_now.failed_in_a_row = 3;
  const HttpReply reply = rig.ask("GET", "/health");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(error_of(reply)["code"], "device_failed");
  EXPECT_NE(error_of(reply)["message"].get<std::string>().find("gpu: lost"), std::string::npos);
}

// Nobody generates any more: the API ends by itself what is under way.
TEST(OpenaiRouter, GivingUpEndsWhatRuns) {
  Rig rig;
  const auto stream = rig.send("POST", "/v1/completions", R"({"prompt":"a","stream":true})");
  rig.generator->last()->push_text("b");
  EXPECT_NE(stream->pull_some().find("\"text\":\"b\""), std::string::npos);
  const auto whole = rig.send("POST", "/v1/completions", R"({"prompt":"a"})");
  const auto complete = rig.send("POST", "/v1/completions", R"({"prompt":"a","stream":true})");
  rig.generator->last()->push_text("c");
  rig.generator->last()->finish();
  rig.api->give_up("rank 1 on studio-2 is gone");
  const std::vector<Json> events = parse_events(stream->wait().body);
  EXPECT_EQ(events.at(0)["error"]["message"], "rank 1 on studio-2 is gone: try again later");
  EXPECT_EQ(events.at(0)["error"]["code"], "rank_lost");
  const HttpReply reply = whole->wait();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(error_of(reply)["code"], "rank_lost");
  EXPECT_EQ(parse_events(complete->wait().body).back(), "[DONE]") << "all of its answer is there";
  for (const char* path : {"/health", "/ready"}) {
    EXPECT_EQ(rig.ask("GET", path).status, 503) << path;
    EXPECT_EQ(error_of(rig.ask("GET", path))["code"], "rank_lost") << path;
  }
  EXPECT_EQ(error_of(rig.ask("POST", "/v1/completions", R"({"prompt":"a"})"))["code"], "rank_lost");
}

TEST(OpenaiRouter, Loading) {
  const auto api = openai::make_api({.served_names = {"tiny"}, .version = "1", .load_progress = [] { return 0.25; }});
  const auto status = [&](const char* method, const char* path) {
    auto exchange = std::make_shared<FakeExchange>(method, path, R"({"prompt":"a"})");
    api->handle(exchange);
    return exchange->wait().status;
  };
  EXPECT_EQ(status("GET", "/live"), 200);
  EXPECT_EQ(status("GET", "/version"), 200);
  auto probe = std::make_shared<FakeExchange>("GET", "/health");
  api->handle(probe);
  const HttpReply health = probe->wait();
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, R"({"status":"loading","progress":0.25})");
  EXPECT_EQ(header_of(health, "Retry-After"), "1");
  for (const char* path : {"/ready", "/v1/models", "/v1/models/tiny"}) EXPECT_EQ(status("GET", path), 503) << path;
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(status("POST", path), 503) << path;
  api->attach(std::make_shared<ScriptedGenerator>());
  EXPECT_EQ(status("GET", "/health"), 200);
  EXPECT_EQ(status("GET", "/ready"), 200);
}

TEST(OpenaiRouter, SelfCheckIsServedOnlyWhenAskedFor) {
  EXPECT_EQ(Rig().ask("GET", "/debug/integrity").status, 404);
  const HttpReply reply = Rig({.debug_endpoints = true}).ask("GET", "/debug/integrity");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Json::parse(reply.body)["faults"], Json::array({"block 3: \"lost\""}));
}

TEST(OpenaiRouter, PageComesWithItsPolicy) {
  EXPECT_EQ(Rig().ask("GET", "/").status, 404);
  const HttpReply reply =
      Rig({.web = {{"/", "text/html", "<p>hello"}}, .page_policy = "default-src 'none'"}).ask("GET", "/");
  EXPECT_EQ(reply.body, "<p>hello");
  EXPECT_EQ(reply.content_type, "text/html");
  const std::pair<std::string, std::string> policy("Content-Security-Policy", "default-src 'none'");
  EXPECT_NE(std::find(reply.headers.begin(), reply.headers.end(), policy), reply.headers.end());
}

TEST(OpenaiRouter, WhatThePageLoadsMayBeKept) {
  Rig rig({.web = {{"/", "text/html", "<p>hello"}, {"/katex.js", "text/javascript", "katex()", true}}});
  EXPECT_EQ(rig.ask("GET", "/katex.css").status, 404);
  const HttpReply reply = rig.ask("GET", "/katex.js");
  EXPECT_EQ(reply.body, "katex()");
  EXPECT_EQ(reply.content_type, "text/javascript");
  const std::pair<std::string, std::string> kept("Cache-Control", "private, max-age=31536000, immutable");
  EXPECT_NE(std::find(reply.headers.begin(), reply.headers.end(), kept), reply.headers.end());
  const HttpReply page = rig.ask("GET", "/");
  EXPECT_EQ(std::find(page.headers.begin(), page.headers.end(), kept), page.headers.end());
}

TEST(OpenaiRouter, LogLineOfACompletion) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("secret");
    generation.finish(FinishReason::stop, {.cached_tokens = 1, .queue_s = 0.01, .prefill_s = 0.02, .decode_s = 0.5});
  };
  rig.post(kText, {{"prompt", "a secret prompt"}, {"stop", "secret stop"}, {"user", "secret user"}});
  eventually([&] { return !rig.log_lines().empty(); });
  ASSERT_EQ(rig.log_lines().size(), 1u);
  const std::string line = rig.log_lines()[0];
  EXPECT_NE(line.find(" id=req-1 peer=127.0.0.1:5000 method=POST path=/v1/completions status=200 "), std::string::npos)
      << line;
  EXPECT_NE(
      line.find(" model=tiny prompt_tokens=16 cached_tokens=1 completion_tokens=6 ttft_ms=30 tok_s=10 finish=stop"),
      std::string::npos)
      << line;
  EXPECT_EQ(line.find("secret"), std::string::npos) << line;
}

TEST(OpenaiRouter, NoLogLineRepeatsWhatWasSent) {
  Rig rig;
  rig.post(kText, {{"prompt", "a"}, {"temperature", "ssssssss"}});
  rig.post(kText, {{"prompt", std::string(300, 's')}});
  rig.post("/v1/chat/completions", {{"messages", {{{"role", "alien"}, {"content", "ssssssss"}}}}});
  ASSERT_EQ(rig.log_lines().size(), 3u);
  for (const std::string& line : rig.log_lines()) EXPECT_EQ(line.find("ssss"), std::string::npos) << line;
  EXPECT_NE(rig.log_lines()[0].find("error=\"invalid_type: temperature\""), std::string::npos);
}

TEST(OpenaiRouter, ProbesAreLoggedOnlyWhenAskedFor) {
  Rig quiet;
  for (const char* path : {"/live", "/health", "/ready", "/metrics"}) quiet.ask("GET", path);
  EXPECT_EQ(quiet.log_lines().size(), 0u);
  quiet.ask("GET", "/version");
  EXPECT_EQ(quiet.log_lines().size(), 1u);
  Rig loud({.log_probes = true});
  for (const char* path : {"/live", "/health", "/ready", "/metrics"}) loud.ask("GET", path);
  EXPECT_EQ(loud.log_lines().size(), 4u);
}

TEST(OpenaiRouter, CountsRequestsByRoute) {
  Rig rig;
  rig.ask("GET", "/a/made/up/path");
  rig.ask("GET", "/another");
  rig.ask("GET", "/v1/models/x");
  rig.ask("MADEUP", "/health");
  HttpRequest request;
  request.method = "POST";
  request.path = kText;
  rig.api->record(request, 401, "no key");
  const std::string text = rig.ask("GET", "/metrics").body;
  for (const char* line : {R"(ingot:http_requests_total{method="GET",path="other",status="404"} 2)",
                           R"(ingot:http_requests_total{method="GET",path="/v1/models/{model}",status="404"} 1)",
                           R"(ingot:http_requests_total{method="other",path="/health",status="405"} 1)",
                           R"(ingot:http_requests_total{method="POST",path="/v1/completions",status="401"} 1)"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_NE(rig.log_lines().back().find("status=401"), std::string::npos);
}

TEST(OpenaiRouter, JsonLog) {
  Rig rig({.log_format = LogFormat::json});
  rig.ask("GET", "/nothing");
  ASSERT_EQ(rig.log_lines().size(), 1u);
  EXPECT_EQ(Json::parse(rig.log_lines()[0])["status"], 404);
}

}  // namespace
}  // namespace ingot::server::testing
