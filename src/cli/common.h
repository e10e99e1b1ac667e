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

void add_engine_options(Options command, ModelArgs& args);

// A prompt as text (-p), a file (-f) or token ids (--ids); exactly one.
struct PromptArgs {
  std::string text;
  std::string file;
  std::vector<int32_t> ids;
};
void add_prompt_options(Options command, PromptArgs& args);

// Path of the model to use: what -m says, else the default model where the set-up put it. Throws Error(bad_call) that
// says how to get it.
std::string resolve_model(const std::string& given);

// Loads with a progress bar on a terminal; calls `progress` of the options too.
std::unique_ptr<Engine> load_engine(const ModelArgs& args);
std::unique_ptr<Llm> load_llm(LlmOptions options);  // options.engine.model: what -m says

// Token ids of the prompt. `tokenizer` may be null when the prompt is given as ids.
std::vector<int32_t> prompt_ids(const PromptArgs& args, const Tokenizer* tokenizer);
std::string prompt_text(const PromptArgs& args);
std::string read_file(const std::string& path);

// "[████····]"
std::string draw_bar(int percent, int width);

// A one-line bar on stderr, drawn only when it is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  void update(size_t done, size_t total);

 private:
  std::string label_;
  bool terminal_;
  int last_percent_ = -1;
};

// One subcommand each; the callback throws Error on failure.
void add_run(Program& program);
void add_chat(Program& program);
void add_serve(Program& program);
void add_bench(Program& program);
void add_logits(Program& program);
void add_perplexity(Program& program);
void add_tokenize(Program& program);
void add_tools(Program& program);
void add_grammar(Program& program);
void add_inspect(Program& program);
void add_quantize(Program& program);
void add_doctor(Program& program);
void add_export_hf(Program& program);

}  // namespace ingot::cli
