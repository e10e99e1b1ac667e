#include "server/openai/served_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/openai/errors.h"

namespace ingot::server::openai {
namespace {

// FNV-1a: the same on every machine, unlike std::hash.
uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

void cut_front(std::vector<int32_t>& ids, const CompletionRequest& request, int64_t context) {
  if (!request.truncate_prompt) return;
  int64_t keep = *request.truncate_prompt;
  if (keep < 0) keep = std::max<int64_t>(1, context - std::min(context, request.max_tokens.value_or(1)));
  const auto most = static_cast<size_t>(keep);
  if (ids.size() > most) ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(most));
}

}  // namespace

ServedModel::ServedModel(std::shared_ptr<Generator> generator, const ApiOptions& options)
    : generator_(std::move(generator)), names_(options.served_names) {
  if (names_.empty()) names_.push_back("ingot");
  const EngineLimits& engine = generator_->limits();
  limits_ = {.vocab = engine.vocab,
             .max_logprobs = std::min(options.max_logprobs, engine.max_top),
             .max_choices = options.max_choices,
             .max_n = std::min(options.max_choices, engine.max_seqs),
             .max_beams = std::min({options.max_choices, engine.max_seqs, engine.max_top / 2}),
             .max_prompts = options.max_prompts,
             .max_stop = options.max_stop};
  const std::string build = options.version + "\n" + names_[0] + "\n" + generator_->device_description();
  fingerprint_ = fmt::format("fp_{:010x}", hash_text(build) & 0xffffffffff);
  if (const Tokenizer* tokenizer = generator_->tokenizer()) {
    const std::string source =
        options.chat_template.empty() ? tokenizer->chat_template().value_or("") : options.chat_template;
    if (!source.empty())
      template_ = std::make_unique<ChatTemplate>(source, tokenizer->bos_token(), tokenizer->eos_token());
  }
}

void ServedModel::check_name(const std::string& name) const {
  if (name.empty() || std::find(names_.begin(), names_.end(), name) != names_.end()) return;
  throw ApiError(404,
                 fmt::format("the model `{}` does not exist: this server has `{}`", printable(name, 200), names_[0]),
                 "model", "model_not_found");
}

const Tokenizer& ServedModel::tokenizer(const char* param) const {
  const Tokenizer* tokenizer = generator_->tokenizer();
  if (tokenizer == nullptr)
    fail(param, "unsupported_value", "cannot be text: this model has no tokenizer, send token ids");
  return *tokenizer;
}

std::vector<int32_t> ServedModel::encode(const ChatInput& chat) const {
  const Tokenizer& words = tokenizer("messages");
  if (!template_)
    fail("messages", "unsupported_value", "need a chat template, which this model has not: use /v1/completions");
  std::string text;
  try {
    text = template_->render(*chat.messages, {.add_generation_prompt = chat.add_generation_prompt,
                                              .continue_final_message = chat.continue_final_message,
                                              .extra = chat.template_variables.get()});
  } catch (const Error& error) {
    // Whatever a conversation does to the template is the conversation's fault, short of a bug of ours.
    if (error.kind() == ErrorKind::internal) throw;
    fail("messages", "invalid_value", "were refused by the model's chat template: {}", error.what());
  }
  return words.encode(text, {.add_special = chat.add_special_tokens, .parse_special = true});
}

std::vector<int32_t> ServedModel::encode(std::string_view text, bool add_special) const {
  return tokenizer("prompt").encode(text, {.add_special = add_special, .parse_special = true});
}

void ServedModel::check_length(size_t tokens, int64_t new_tokens, const char* param) const {
  if (tokens == 0) fail(param, "invalid_value", "holds no token: there is nothing to continue");
  if (static_cast<int64_t>(tokens) + std::min<int64_t>(1, new_tokens) > context())
    fail(param, "context_length_exceeded",
         "has {} tokens, but the model's context holds {}, the answer included: shorten it", tokens, context());
}

std::vector<PromptTokens> ServedModel::prompts(const CompletionRequest& request) const {
  std::vector<PromptTokens> prompts;
  if (request.chat) {
    PromptTokens prompt{.ids = encode(*request.chat), .text = {}};
    if (request.output.echo && request.chat->last_role() == "assistant") prompt.text = request.chat->last_text();
    cut_front(prompt.ids, request, context());
    check_length(prompt.ids.size(), 1, "messages");
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string param = request.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i);
    PromptTokens prompt;
    const auto* text = std::get_if<std::string>(&request.prompts[i]);
    prompt.ids = text != nullptr ? encode(*text, request.add_special_tokens)
                                 : std::get<std::vector<int32_t>>(request.prompts[i]);
    const size_t before = prompt.ids.size();
    cut_front(prompt.ids, request, context());
    check_length(prompt.ids.size(), request.max_tokens.value_or(1), param.c_str());
    if (request.output.echo) {
      const Tokenizer* words = generator_->tokenizer();
      if (text != nullptr && prompt.ids.size() == before)
        prompt.text = *text;
      else if (words != nullptr)
        prompt.text = words->decode(prompt.ids, request.generation.skip_special_tokens);
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace ingot::server::openai
