// ingot's API over HTTP with a model that says what it is told: scripted_server ANSWERS.json [--tool-format NAME]
// [--template FILE] [--served-model-name NAME]... [--api-key KEY]... The answers are a list of texts, of which a
// request gets the next one, or an object: the first answer whose key is in the prompt. Each comes a few bytes at a
// time. Prints its address, ends with its standard input.
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

#include "server/http_server.h"
#include "server/openai_rig.h"

namespace {

using namespace ingot::server;
namespace rig = ingot::server::testing;

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Each answer in a thread of its own, as a model would give it: beside whoever reads it.
class TalkingGenerator : public rig::ScriptedGenerator {
 public:
  explicit TalkingGenerator(rig::Json answers) : answers_(std::move(answers)) { limits_now.max_model_len = 65536; }
  ~TalkingGenerator() override {
    for (std::thread& thread : threads_) thread.join();
  }

  std::shared_ptr<ingot::Generation> submit(ingot::GenerationRequest request, std::function<void()> notify) override {
    const std::lock_guard lock(mutex_);
    const std::string text = answer_to(tokenizer()->decode(request.prompt, false));
    ScriptedGenerator::submit(std::move(request), std::move(notify));
    threads_.emplace_back([generation = last(), text] {
      constexpr size_t kPiece = 5;
      for (size_t at = 0; at < text.size(); at += kPiece) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        generation->push_text(text.substr(at, kPiece));
      }
      generation->finish();
    });
    return last();
  }

 private:
  std::string answer_to(const std::string& prompt) {
    if (answers_.is_array()) return answers_[next_++ % answers_.size()];
    for (const auto& [part, text] : answers_.items())
      if (prompt.find(part) != prompt.npos) return text;
    return "I have nothing to say to this.";
  }

  std::mutex mutex_;
  rig::Json answers_;
  size_t next_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

int main(int argc, char** argv) {
  openai::ApiOptions options{.served_names = {"scripted"}};
  HttpServerOptions http{.port = 0};
  rig::Json answers;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--tool-format" && i + 1 < argc)
      options.tool_format = argv[++i];
    else if (word == "--template" && i + 1 < argc)
      options.chat_template = slurp(argv[++i]);
    else if (word == "--served-model-name" && i + 1 < argc)
      options.served_names.push_back(argv[++i]);
    else if (word == "--api-key" && i + 1 < argc)
      http.api_keys.push_back(argv[++i]);
    else
      answers = rig::Json::parse(slurp(word));
  }
  const auto generator = std::make_shared<TalkingGenerator>(std::move(answers));
  const auto api = openai::make_api(options);
  api->attach(generator);
  HttpServer server(http, openai::make_handler(api));
  server.start();
  std::cout << server.url() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  server.stop();
  return 0;
}
