#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ingot/engine.h"
#include "ingot/llm.h"
#include "ingot/tokenizer.h"

namespace ingot::cli {

class Options;
class Program;

// The flags every command that touches a model has.
struct ModelArgs {
  std::string model;
  std::string config;
  EngineOptions engine;
};

void add_engine_options(Options command, ModelArgs& args);  // both of these
void add_model_options(Options command, ModelArgs& args);   // which model
void add_device_options(Options command, ModelArgs& args);  // how it is loaded and run

// How tokens are guessed.
struct SpeculationArgs {
  std::string kind = "auto";
  std::string draft_model;
};
void add_speculation_options(Options command, SpeculationArgs& args);
void set_speculation(const SpeculationArgs& args, LlmOptions& options);

// Where KV blocks go that leave the device.
struct PrefixArgs {
  uint64_t ram = 0;
  std::string dir;
  uint64_t dir_bytes = LlmOptions().prefix_dir_bytes;

  void apply(LlmOptions& options) const;
};
void add_prefix_options(Options command, PrefixArgs& args);

void add_pooling_options(Options command, ModelArgs& args);  // texts as vectors
void add_model_argument(Options command, ModelArgs& args);   // the model without -m in front

// A prompt as it was given: a word of its own, -p, -f, --ids or standard input.
struct PromptArgs {
  std::string word;
  std::string text;
  std::string file;
  std::vector<int32_t> ids;
};
void add_prompt_options(Options command, PromptArgs& args);

// What was meant by them: a text, or token ids. Throws Error(bad_call) where there is none, more than one, or no text.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};
Prompt read_prompt(const PromptArgs& args);

// Path of the model to use: what -m says, else the default model where the set-up put it. Throws Error(bad_call) that
// says how to get it.
std::string resolve_model(const std::string& given);
std::string default_model();          // where it is, or would be
std::string fetched_default_model();  // ... once it is there: the command of the Python package fetches it

// With --tp: whether this process is a rank other than 0. If so it has followed rank 0 to the end, and is done.
bool followed_rank_0(const ModelArgs& args);

// Loads, and shows how far it is; calls `progress` of the options too.
std::unique_ptr<Engine> load_engine(const ModelArgs& args);
std::unique_ptr<Llm> load_llm(LlmOptions options);  // options.engine.model: what -m says

// Token ids of the prompt. `tokenizer` may be null when the prompt is given as ids.
std::vector<int32_t> prompt_ids(const Prompt& prompt, const Tokenizer* tokenizer);
std::string read_file(const std::string& path);

// One subcommand each; the callback throws Error on failure.
void add_run(Program& program);
void add_chat(Program& program);
void add_serve(Program& program);
void add_bench(Program& program);
void add_logits(Program& program);
void add_perplexity(Program& program);
void add_embed(Program& program);
void add_tokenize(Program& program);
void add_tools(Program& program);
void add_grammar(Program& program);
void add_inspect(Program& program);
void add_quantize(Program& program);
void add_doctor(Program& program);
void add_tune(Program& program);
void add_export_hf(Program& program);

}  // namespace ingot::cli
