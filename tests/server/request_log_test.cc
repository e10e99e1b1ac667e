#include "server/request_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace ingot::server {
namespace {

RequestRecord sample() {
  RequestRecord record;
  record.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1700000000123));
  record.id = "abc-1";
  record.peer = "127.0.0.1:5000";
  record.method = "POST";
  record.path = "/v1/completions";
  record.status = 200;
  record.duration_s = 1.5;
  record.model = "tiny";
  record.prompt_tokens = 10;
  record.cached_tokens = 8;
  record.completion_tokens = 5;
  record.first_token_s = 0.0125;
  record.tokens_per_s = 33.337;
  record.finish = "stop";
  return record;
}

TEST(RequestLog, Text) {
  EXPECT_EQ(format_record(sample(), LogFormat::text),
            "time=2023-11-14T22:13:20.123Z id=abc-1 peer=127.0.0.1:5000 method=POST path=/v1/completions status=200 "
            "duration_ms=1500 model=tiny prompt_tokens=10 cached_tokens=8 completion_tokens=5 ttft_ms=12.5 tok_s=33.34 "
            "finish=stop");
}

TEST(RequestLog, Json) {
  EXPECT_EQ(format_record(sample(), LogFormat::json),
            R"({"time":"2023-11-14T22:13:20.123Z","id":"abc-1","peer":"127.0.0.1:5000","method":"POST",)"
            R"("path":"/v1/completions","status":200,"duration_ms":1500.0,"model":"tiny","prompt_tokens":10,)"
            R"("cached_tokens":8,"completion_tokens":5,"ttft_ms":12.5,"tok_s":33.34,"finish":"stop"})");
}

TEST(RequestLog, FieldsOfOtherRequestsAreLeftOut) {
  RequestRecord record = sample();
  record.model = record.finish = "";
  record.prompt_tokens.reset();
  record.cached_tokens.reset();
  record.completion_tokens.reset();
  record.first_token_s.reset();
  record.tokens_per_s.reset();
  record.error = "no such path";
  EXPECT_EQ(format_record(record, LogFormat::text),
            "time=2023-11-14T22:13:20.123Z id=abc-1 peer=127.0.0.1:5000 method=POST path=/v1/completions status=200 "
            "duration_ms=1500 error=\"no such path\"");
}

TEST(RequestLog, HostileValuesStayInTheirField) {
  RequestRecord record = sample();
  record.path = "/x status=200\nfake=line \"quoted\" \\ \x1b[31m \xff ü";
  const std::string text = format_record(record, LogFormat::text);
  EXPECT_NE(text.find(R"(path="/x status=200\x0afake=line \"quoted\" \\ \x1b[31m \xff \xc3\xbc" status=200)"),
            std::string::npos)
      << text;
  const std::string json = format_record(record, LogFormat::json);
  EXPECT_EQ(nlohmann::json::parse(json)["path"], "/x status=200\nfake=line \"quoted\" \\ \x1b[31m \uFFFD ü");
  for (const std::string& line : {text, json})
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
}

TEST(RequestLog, LongValuesAreCut) {
  RequestRecord record = sample();
  record.path = std::string(100'000, 'a');
  EXPECT_LT(format_record(record, LogFormat::text).size(), 1000u);
  EXPECT_LT(format_record(record, LogFormat::json).size(), 1000u);
}

TEST(RequestLog, LinesOfManyThreadsDoNotMix) {
  std::vector<std::string> lines;  // the log itself must serialize
  RequestLog log([&](std::string_view line) { lines.emplace_back(line); }, LogFormat::text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) log.write(sample());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) EXPECT_EQ(line, lines[0]);
}

}  // namespace
}  // namespace ingot::server
