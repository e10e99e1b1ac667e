#include "server/openai/api.h"

namespace ingot::server::openai {
namespace {

class LlmGenerator final : public Generator {
 public:
  explicit LlmGenerator(Llm& llm) : llm_(llm) {}

  std::shared_ptr<Generation> submit(GenerationRequest request, std::function<void()> notify) override {
    return llm_.submit(std::move(request), std::move(notify));
  }
  void compile(StructuredOutput& structured, const CancelFlag* cancelled) override {
    llm_.compile(structured, cancelled);
  }
  void drain() override { llm_.drain(); }
  double retry_after_s() const override { return llm_.retry_after_s(); }
  LlmStats stats() const override { return llm_.stats(); }
  const EngineLimits& limits() const override { return llm_.limits(); }
  const Tokenizer* tokenizer() const override { return llm_.tokenizer(); }
  std::string device_description() const override { return llm_.device_description(); }
  const ModelInfo& model_info() const override { return llm_.model(); }
  std::vector<std::string> check_integrity() override { return llm_.check_integrity(); }

 private:
  Llm& llm_;
};

}  // namespace

void Api::attach(Llm& llm) { attach(std::make_shared<LlmGenerator>(llm)); }

std::shared_ptr<Api> make_api(Llm& llm, ApiOptions options) {
  std::shared_ptr<Api> api = make_api(std::move(options));
  api->attach(llm);
  return api;
}

}  // namespace ingot::server::openai
