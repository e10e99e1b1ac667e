#include "server/openai/served_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/openai/errors.h"
#include "server/openai/messages.h"
#include "text/bad_words.h"
#include "text/calls/hold_answer.h"

namespace ingot::server::openai {
namespace {

// FNV-1a: the same on every machine, unlike std::hash.
uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Texts up to this size are tokenized whatever the context is, so that their tokens can be counted.
constexpr uint64_t kAlwaysTokenized = 64 << 10;

uint64_t find_longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest,
                       tokenizer.is_special(id) ? tokenizer.token_text(id).size() : tokenizer.token_bytes(id).size());
  return longest;
}

bool has_role(const nlohmann::ordered_json& messages, std::string_view role) {
  return std::any_of(messages.begin(), messages.end(), [&](const auto& message) { return message["role"] == role; });
}

// OpenAI's newer word for the same; most templates know the older one alone and leave the other out.
nlohmann::ordered_json with_system(nlohmann::ordered_json messages) {
  for (auto& message : messages)
    if (message["role"] == "developer") message["role"] = "system";
  return messages;
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
  limits_ = options.limits;
  limits_.vocab = engine.vocab;
  limits_.sampling = generator_->model_info().sampling.over({});
  limits_.max_logprobs = std::min<int64_t>(limits_.max_logprobs, engine.max_top);
  limits_.max_n = std::min<int64_t>(limits_.max_choices, engine.max_seqs);
  limits_.max_beams = std::min<int64_t>(limits_.max_n, engine.max_top / 2);
  const std::string build = options.version + "\n" + names_[0] + "\n" + generator_->device_description();
  fingerprint_ = fmt::format("fp_{:010x}", hash_text(build) & 0xffffffffff);
  if (const Tokenizer* tokenizer = generator_->tokenizer()) {
    const std::string source =
        options.chat_template.empty() ? tokenizer->chat_template().value_or("") : options.chat_template;
    if (!source.empty()) {
      format_ =
          std::make_shared<ChatFormat>(source, tokenizer->bos_token(), tokenizer->eos_token(), options.tool_format);
      special_marks_ = format_->has_special_marks(*tokenizer);
    }
    for (const std::string& text : options.shared_prefixes) add_shared(text);
    infill_ = InfillFormat::of(*tokenizer);
    longest_token_ = find_longest_token(*tokenizer);
    most_prompt_bytes_ = std::max(kAlwaysTokenized, static_cast<uint64_t>(context()) * longest_token_);
  }
}

// As the beginning of a text, and as the system prompt of a conversation where the template knows one.
void ServedModel::add_shared(const std::string& text) {
  const Tokenizer& words = tokenizer("prompt");
  shared_.push_back(words.encode(text));
  if (!format_) return;
  const nlohmann::ordered_json chat = {{{"role", "system"}, {"content", text}}, {{"role", "user"}, {"content", "a"}}};
  try {
    shared_.push_back(words.encode(format_->render(chat).text, {.add_special = false}));
  } catch (const Error&) {
    return;  // this template has no system prompts
  }
}

int64_t ServedModel::shared_tokens(std::span<const int32_t> prompt) const {
  ptrdiff_t longest = 0;
  for (const std::vector<int32_t>& known : shared_)
    longest = std::max(longest,
                       std::mismatch(prompt.begin(), prompt.end(), known.begin(), known.end()).first - prompt.begin());
  return longest;
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

ChatFormat::Prompt ServedModel::render(const ChatInput& chat, const CancelFlag* cancelled) const {
  if (!format_)
    fail(chat.param, "unsupported_value", "need a chat template, which this model has not: use /v1/completions");
  const std::string_view source = format_->chat_template().source();
  check_roles(*chat.messages, source);
  nlohmann::ordered_json renamed;
  const bool knows_developers = source.find("developer") != source.npos;
  if (!knows_developers && has_role(*chat.messages, "developer")) renamed = with_system(*chat.messages);
  try {
    const bool offered = chat.tool_choice.kind != ToolChoice::Kind::none;
    return format_->render(renamed.is_null() ? *chat.messages : renamed,
                           {.add_generation_prompt = chat.add_generation_prompt,
                            .continue_final_message = chat.continue_final_message,
                            .tools = offered ? chat.tools.get() : nullptr,
                            .extra = chat.template_variables.get(),
                            .cancelled = cancelled});
  } catch (const Error& error) {
    // Whatever a conversation does to the template is the conversation's fault, short of a bug of ours.
    if (error.kind() == ErrorKind::internal || error.kind() == ErrorKind::cancelled) throw;
    fail(chat.param, "invalid_value", "were refused by the model's chat template: {}", error.what());
  }
}

std::vector<int32_t> ServedModel::encode(const ChatInput& chat, bool whole, const CancelFlag* cancelled,
                                         bool* in_reasoning) const {
  const Tokenizer& words = tokenizer(chat.param);
  const ChatFormat::Prompt prompt = render(chat, cancelled);
  if (in_reasoning != nullptr) *in_reasoning = prompt.in_reasoning;
  return words.encode(within_bytes(chat.param, prompt.text, whole),
                      {.add_special = chat.add_special_tokens, .parse_special = true, .cancelled = cancelled});
}

std::vector<int32_t> ServedModel::encode(const std::string& param, std::string_view text, bool add_special, bool whole,
                                         const CancelFlag* cancelled) const {
  return tokenizer(param.c_str())
      .encode(within_bytes(param, text, whole),
              {.add_special = add_special, .parse_special = true, .cancelled = cancelled});
}

std::vector<int32_t> ServedModel::encode_infill(const std::string& param, std::string_view prefix, const Infill& infill,
                                                const CancelFlag* cancelled) const {
  size_t bytes = prefix.size() + infill.suffix.size();
  for (const InfillFormat::File& file : infill.others) bytes += file.name.size() + file.text.size();
  if (bytes > most_prompt_bytes_)
    fail(
        param, "context_length_exceeded",
        "has {} bytes with what belongs to it, but no text of more than {} fits into the model's context of {} tokens: "
        "shorten it",
        bytes, most_prompt_bytes_, context());
  return infill_->prompt(tokenizer(param.c_str()), prefix, infill.suffix, infill.others, cancelled);
}

void ServedModel::end_infill(CompletionRequest& request) const {
  if (!request.infill) return;
  if (!infill_)
    fail(request.infill->param, "unsupported_parameter",
         "is not supported by this model: it has no tokens for filling in the middle");
  std::vector<int32_t>& ends = request.generation.sampling.stop_token_ids;
  ends.insert(ends.end(), infill_->ends().begin(), infill_->ends().end());
}

void ServedModel::tokenize_bad_words(GenerationRequest& generation, const CancelFlag* cancelled) const {
  if (generation.bad_words.empty()) return;
  generation.sampling.bad_words = bad_word_ids(tokenizer("bad_words"), generation.bad_words, cancelled);
  generation.bad_words.clear();
}

std::string_view ServedModel::within_bytes(const std::string& param, std::string_view text, bool whole) const {
  if (text.size() <= most_prompt_bytes_) return text;
  if (!whole) {
    text.remove_prefix(text.size() - most_prompt_bytes_);
    while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80) text.remove_prefix(1);
    return text;
  }
  fail(param, "context_length_exceeded",
       "has {} bytes, but no text of more than {} fits into the model's context of {} tokens: shorten it, or keep its "
       "end with truncate_prompt_tokens",
       text.size(), most_prompt_bytes_, context());
}

std::optional<ChatReading> ServedModel::reading(CompletionRequest& request) const {
  if (!request.chat || !format_) return std::nullopt;
  const ChatInput& chat = *request.chat;
  ChatReading reading{.format = format_,
                      .options = {.calls = chat.tools && chat.tool_choice.kind != ToolChoice::Kind::none,
                                  .reasoning = format_->reasons()},
                      .parallel_calls = chat.parallel_tool_calls,
                      .include_reasoning = chat.include_reasoning};
  if (!reading.options.calls && !reading.options.reasoning) return std::nullopt;
  if (chat.tools) reading.options.tools = ToolSchemas(*chat.tools);
  if (special_marks_) request.generation.skip_special_tokens = false;
  return reading;
}

void ServedModel::hold_answer(CompletionRequest& request, bool in_reasoning) const {
  using Kind = ToolChoice::Kind;
  if (!request.chat || !format_) return;
  const ChatInput& chat = *request.chat;
  const Kind choice = chat.tool_choice.kind;
  ingot::hold_answer(*format_,
                     {.tools = choice == Kind::none ? nullptr : chat.tools.get(),
                      .calls_only = choice == Kind::required || choice == Kind::named,
                      .function = chat.tool_choice.name,
                      .parallel_calls = chat.parallel_tool_calls,
                      .in_reasoning = in_reasoning,
                      .thinking_budget = chat.thinking_budget.has_value()},
                     request.generation.structured);
  request.generation.thinking_budget = chat.thinking_budget.value_or(-1);
}

void ServedModel::check_answer(const std::string& param, uint64_t bytes) const {
  if (bytes <= static_cast<uint64_t>(limits_.max_answer_bytes)) return;
  fail(param, "answer_too_large", "asks for an answer of about {} bytes, at most {} are given (--limit answer-bytes)",
       bytes, limits_.max_answer_bytes);
}

void ServedModel::check_length(size_t tokens, int64_t new_tokens, const char* param) const {
  if (tokens == 0) fail(param, "invalid_value", "holds no token: there is nothing to continue");
  if (static_cast<int64_t>(tokens) + std::min<int64_t>(1, new_tokens) > context())
    fail(param, "context_length_exceeded",
         "has {} tokens, but the model's context holds {}, the answer included: shorten it", tokens, context());
}

void ServedModel::check_pooling() const {
  if (generator_->limits().pooling) return;
  throw ApiError(
      400,
      "this model was not made for embeddings: start the server with --embeddings to have them all the same, "
      "or load a model that was",
      "model", "unsupported_model");
}

bool ServedModel::judges() const {
  const Tokenizer* words = generator_->tokenizer();
  return generator_->model_info().reranks && words != nullptr && words->find("yes") >= 0 && words->find("no") >= 0;
}

std::vector<PromptTokens> ServedModel::prompts(const CompletionRequest& request, const CancelFlag* cancelled,
                                               const std::string& param) const {
  const bool whole = !request.truncate_prompt;
  std::vector<PromptTokens> prompts;
  if (request.chat) {
    PromptTokens prompt;
    prompt.ids = encode(*request.chat, whole, cancelled, &prompt.in_reasoning);
    if (request.output.echo && request.chat->last_role() == "assistant") prompt.text = request.chat->last_text();
    cut_front(prompt.ids, request, context());
    check_length(prompt.ids.size(), 1, request.chat->param);
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string name = request.prompts.size() == 1 ? param : fmt::format("{}[{}]", param, i);
    PromptTokens prompt;
    const auto* text = std::get_if<std::string>(&request.prompts[i]);
    prompt.ids = request.infill    ? encode_infill(name, *text, *request.infill, cancelled)
                 : text != nullptr ? encode(name, *text, request.add_special_tokens, whole, cancelled)
                                   : std::get<std::vector<int32_t>>(request.prompts[i]);
    const size_t before = prompt.ids.size();
    cut_front(prompt.ids, request, context());
    check_length(prompt.ids.size(), request.max_tokens.value_or(1), name.c_str());
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
