#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/embedding.h"
#include "core/printable.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/pooling.h"
#include "server/openai/prompt_fields.h"
#include "server/openai/sampling_fields.h"

namespace ingot::server::openai {
namespace {

// About what a number takes in an answer, in bytes.
constexpr uint64_t kNumberBytes = 13, kBase64Bytes = 6;

class EmbeddingWriter final : public AnswerWriter {
 public:
  EmbeddingWriter(std::string model, bool base64, int64_t dimensions)
      : model_(std::move(model)), base64_(base64), dimensions_(static_cast<size_t>(dimensions)) {}

  // Written as it goes: a tree of a million numbers would be many times their size.
  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    std::string out = R"({"object":"list","data":[)";
    for (size_t i = 0; i < answers.size(); ++i) {
      out += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",", i);
      append_vector(out, front_of(answers[i].choices.at(0).embedding, dimensions_));
      out += '}';
    }
    out += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", dump(model_),
                       usage.prompt_tokens, usage.prompt_tokens);
    return out;
  }
  void stream(size_t, const ChoiceDelta&, const std::vector<TokenScore>&, const Usage&, std::string&) override {}
  void stream_end(const Usage&, std::string&) override {}
  void stream_error(const ErrorReply&, std::string&) override {}

 private:
  void append_vector(std::string& out, const std::vector<float>& vector) const {
    if (base64_) {
      std::string bytes(vector.size() * sizeof(float), '\0');  // little-endian, as every machine this runs on
      std::memcpy(bytes.data(), vector.data(), bytes.size());
      out += '"' + encode_base64(bytes) + '"';
      return;
    }
    char before = '[';
    for (const float value : vector) {
      out += before;
      fmt::format_to(std::back_inserter(out), "{}", value);
      before = ',';
    }
    out += ']';
  }

  const std::string model_;
  const bool base64_;
  const size_t dimensions_;  // 0: all
};

}  // namespace

PoolingCall embeddings(const ServedModel& model, std::string_view body, const std::string&,
                       const CancelFlag* cancelled) {
  const RequestLimits& limits = model.request_limits();
  const nlohmann::ordered_json json = parse_body(body, limits, cancelled);
  Fields fields(json, kEmbeddingsEndpoint, limits);
  CompletionRequest request;
  request.model = fields.string("model").value_or("");
  model.check_name(request.model);
  request.prompts = take_prompts(fields, "input", {limits.max_inputs, "inputs"}, limits.vocab);
  const std::string format = fields.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    fail("encoding_format", "invalid_value", "must be float or base64, got `{}`", printable(format, 60));
  model.check_pooling();
  const int64_t hidden = model.generator().model_info().hidden;
  const std::optional<int64_t> dimensions = fields.integer("dimensions", 1, hidden);
  request.truncate_prompt = take_truncation(fields);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  request.max_tokens = 0;
  check_other_parameters(fields);
  const uint64_t each = format == "base64" ? kBase64Bytes : kNumberBytes;
  model.check_answer("input", request.prompts.size() * each * static_cast<uint64_t>(dimensions.value_or(hidden)));

  PoolingCall call{.model = request.model.empty() ? model.name() : request.model};
  for (PromptTokens& prompt : model.prompts(request, cancelled, "input")) {
    GenerationRequest& one = call.requests.emplace_back();
    one.prompt = std::move(prompt.ids);
    one.embed = true;
  }
  call.writer = std::make_unique<EmbeddingWriter>(call.model, format == "base64", dimensions.value_or(0));
  return call;
}

}  // namespace ingot::server::openai
