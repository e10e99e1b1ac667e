#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/cancel.h"
#include "ingot/llm.h"
#include "server/openai/limits.h"
#include "text/infill.h"

// What a client asked for, read out of its JSON and checked as far as that goes without tokenizing.
namespace ingot::server::openai {

class AnswerWriter;
struct AnswerContext;

// How the answer is written.
struct OutputOptions {
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // the usage so far in every chunk
  bool progress = false;          // events that tell how much of the prompt was read
  bool echo = false;              // the prompt (chat: the last message) comes back in front of the answer
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool prompt_logprobs = false;
  bool token_ids = false;                    // return_token_ids
  bool tokens_as_ids = false;                // tokens in logprobs are written "token_id:123"
  uint64_t repeated_bytes = 0;               // of the request, which come back in the answer
  std::vector<std::string> response_fields;  // /infill: what of the answer is wanted; empty: all
};

// A text with a gap that is to be filled: a prompt is what stands before it, this what stands after.
struct Infill {
  std::string suffix;
  std::vector<InfillFormat::File> others = {};  // of the same project
  const char* param = "suffix";                 // what errors call it
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct ModelRequest {
  std::string model;  // empty: not given
};

struct ToolChoice {
  enum class Kind { automatic, none, required, named };
  Kind kind = Kind::automatic;
  std::string name;  // of the function, where one is named
};

// A conversation, as /v1/chat/completions and /tokenize take it, and as other APIs are put.
struct ChatInput {
  const char* param = "messages";  // what errors call it
  std::shared_ptr<const nlohmann::ordered_json> messages;
  std::shared_ptr<const nlohmann::ordered_json> tools;  // null: none are offered
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;  // otherwise only the first call is handed on
  bool include_reasoning = true;
  std::optional<int64_t> thinking_budget;  // tokens of its reasoning, then it is closed; absent: any number
  std::shared_ptr<const nlohmann::ordered_json> template_variables;  // chat_template_kwargs; may be null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;

  std::string last_role() const;
  std::string last_text() const;  // of the last message; text parts joined
};

// A request for text, whichever API it came by. `generation` lacks what comes later: id, prompt, deadline.
struct CompletionRequest : ModelRequest {
  const char* id_prefix = "";                                               // of the answer; the request's id follows
  std::function<std::unique_ptr<AnswerWriter>(AnswerContext)> make_writer;  // how that API writes its answers
  OutputOptions output;
  GenerationRequest generation;
  std::optional<int64_t> max_tokens;       // absent: the endpoint's default
  std::optional<int64_t> truncate_prompt;  // keep this many tokens of the prompt's end
  std::optional<ChatInput> chat;           // either this
  std::vector<Prompt> prompts;             // or these
  bool add_special_tokens = true;          // to text prompts
  std::optional<Infill> infill;            // the prompts are beginnings of texts with a gap
};

struct TemplateRequest : ModelRequest {
  ChatInput chat;
};

struct TokenizeRequest : ModelRequest {
  std::optional<ChatInput> chat;
  std::string prompt;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest : ModelRequest {
  std::vector<int32_t> tokens;
};

// All throw ApiError, and Error (cancelled) soon after `cancelled` is set. A name that is neither supported nor known
// to be harmless is refused (parameters.h).
CompletionRequest parse_chat_request(std::string_view body, const RequestLimits& limits,
                                     const CancelFlag* cancelled = nullptr);
CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits,
                                           const CancelFlag* cancelled = nullptr);
CompletionRequest parse_infill_request(std::string_view body, const RequestLimits& limits,
                                       const CancelFlag* cancelled = nullptr);
TemplateRequest parse_template_request(std::string_view body, const RequestLimits& limits,
                                       const CancelFlag* cancelled = nullptr);
TokenizeRequest parse_tokenize_request(std::string_view body, const RequestLimits& limits,
                                       const CancelFlag* cancelled = nullptr);
DetokenizeRequest parse_detokenize_request(std::string_view body, const RequestLimits& limits,
                                           const CancelFlag* cancelled = nullptr);

}  // namespace ingot::server::openai
