#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ingot/tokenizer.h"
#include "server/openai/answer.h"
#include "server/openai/api.h"
#include "server/openai/request.h"
#include "text/chat_template.h"

namespace ingot::server::openai {

// The model behind the API, with what is worked out once. Immutable.
class ServedModel {
 public:
  ServedModel(std::shared_ptr<Generator> generator, const ApiOptions& options);

  Generator& generator() const { return *generator_; }
  const std::string& name() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& fingerprint() const { return fingerprint_; }
  const RequestLimits& request_limits() const { return limits_; }
  int64_t context() const { return generator_->limits().max_model_len; }

  // 404 when `name` is not served. An empty name is the model's own.
  void check_name(const std::string& name) const;
  const Tokenizer& tokenizer(const char* param) const;  // 400 naming `param` when there is none

  std::vector<int32_t> encode(const ChatInput& chat) const;
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;

  // The prompts of a request as the model gets them, cut as the request says. 400 when one does not fit the context.
  std::vector<PromptTokens> prompts(const CompletionRequest& request) const;

 private:
  void check_length(size_t tokens, int64_t new_tokens, const char* param) const;

  std::shared_ptr<Generator> generator_;
  std::vector<std::string> names_;
  std::string fingerprint_;
  RequestLimits limits_;
  std::unique_ptr<const ChatTemplate> template_;
};

}  // namespace ingot::server::openai
