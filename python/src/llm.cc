#include "ingot/llm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "ingot/tokenizer.h"
#include "module.h"
#include "text/chat_format.h"

// The orchestrator as _ingot.LlmCore: what ingot/llm.py is made of.
namespace ingot::python {
namespace {

std::unique_ptr<Llm> load_llm(std::string model, std::string quantize, std::string device, int threads, std::string isa,
                              int64_t max_model_len, int64_t kv_blocks, std::string kv_dtype, int32_t max_step_tokens,
                              int32_t max_seqs, bool prefix_caching) {
  LlmOptions options;
  options.engine.model = std::move(model);
  options.engine.quantize = std::move(quantize);
  options.engine.device = std::move(device);
  options.engine.threads = threads;
  options.engine.isa = std::move(isa);
  options.engine.max_model_len = max_model_len;
  options.engine.kv_blocks = kv_blocks;
  options.engine.kv_dtype = std::move(kv_dtype);
  options.engine.max_step_tokens = max_step_tokens;
  options.engine.max_seqs = max_seqs;
  options.prefix_caching = prefix_caching;
  const nb::gil_scoped_release release;
  return Llm::load(options);
}

StructuredOutput::Kind structured_kind(const std::string& name) {
  using Kind = StructuredOutput::Kind;
  static const std::map<std::string, Kind> kKinds = {{"none", Kind::none},
                                                     {"json_object", Kind::json_object},
                                                     {"json", Kind::json_schema},
                                                     {"regex", Kind::regex},
                                                     {"choice", Kind::choice},
                                                     {"grammar", Kind::gbnf},
                                                     {"structural_tag", Kind::structural_tag}};
  const auto found = kKinds.find(name);
  if (found == kKinds.end()) throw_bad_parameter("structured", "has no kind `{}`", name);
  return found->second;
}

std::shared_ptr<Generation> submit(Llm& llm, std::vector<int32_t> prompt, SamplingParams sampling, bool random_seed,
                                   int64_t max_tokens, int32_t n, std::vector<std::string> stop,
                                   std::vector<std::string> bad_words, bool ignore_eos, int32_t logprobs,
                                   int32_t prompt_logprobs, const StructuredOutput& structured) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = std::move(sampling);
  request.random_seed = random_seed;
  request.max_tokens = max_tokens;
  request.n = n;
  request.stop = std::move(stop);
  request.bad_words = std::move(bad_words);
  request.ignore_eos = ignore_eos;
  request.logprobs = logprobs;
  request.prompt_logprobs = prompt_logprobs;
  request.structured = structured;
  const nb::gil_scoped_release release;
  return llm.submit(std::move(request));
}

nb::list to_scores(const std::vector<TokenScore>& scores) {
  nb::list result;
  for (const TokenScore& score : scores) {
    nb::list top;
    for (const TokenLogprob& t : score.top) top.append(nb::make_tuple(t.token, t.logprob));
    nb::dict entry;
    entry["token"] = score.token;
    entry["logprob"] = score.logprob;
    entry["rank"] = score.rank;
    entry["top"] = top;
    result.append(entry);
  }
  return result;
}

nb::list take(Generation& generation) {
  std::vector<ChoiceDelta> deltas;
  {
    const nb::gil_scoped_release release;
    deltas = generation.take();
  }
  nb::list result;
  for (const ChoiceDelta& delta : deltas)
    result.append(nb::make_tuple(delta.index, delta.text, delta.token_ids, to_scores(delta.scores),
                                 std::string(to_string(delta.finish))));
  return result;
}

// Wakes up ten times a second so that Ctrl-C is seen.
bool wait(Generation& generation, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    bool news = false;
    {
      const nb::gil_scoped_release release;
      news = generation.wait(std::chrono::milliseconds(100));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (news || Clock::now() >= end) return news;
  }
}

nb::dict summary(const Generation& generation) {
  const GenerationSummary s = generation.summary();
  nb::dict result;
  result["prompt_tokens"] = s.prompt_tokens;
  result["cached_tokens"] = s.cached_tokens;
  result["completion_tokens"] = s.completion_tokens;
  result["preemptions"] = s.preemptions;
  result["queue_s"] = s.queue_s;
  result["prefill_s"] = s.prefill_s;
  result["decode_s"] = s.decode_s;
  result["error"] = s.error;
  return result;
}

nb::dict stats(const Llm& llm) {
  const LlmStats s = llm.stats();
  nb::dict result;
  result["running"] = s.running;
  result["waiting"] = s.waiting;
  result["blocks_total"] = s.blocks_total;
  result["blocks_used"] = s.blocks_used;
  result["blocks_cached"] = s.blocks_cached;
  result["steps"] = s.steps;
  result["failed_steps"] = s.failed_steps;
  result["preemptions"] = s.preemptions;
  result["prompt_tokens"] = s.prompt_tokens;
  result["generation_tokens"] = s.generation_tokens;
  result["prefix_queries"] = s.prefix_queries;
  result["prefix_hits"] = s.prefix_hits;
  result["refused"] = s.refused;
  return result;
}

const Tokenizer& tokenizer_of(const Llm& llm) {
  if (llm.tokenizer() == nullptr)
    throw_error(ErrorKind::declined, "this model has no tokenizer: give prompts as token ids");
  return *llm.tokenizer();
}

// `tools_json`: a list, or "" for none; `tool_format`: "" for the template's own.
ChatFormat chat_format(const Llm& llm, const std::string& tool_format) {
  const Tokenizer& tokenizer = tokenizer_of(llm);
  if (!tokenizer.chat_template())
    throw_error(ErrorKind::declined, "this model has no chat template: use generate() with the whole prompt");
  return ChatFormat(*tokenizer.chat_template(), tokenizer.bos_token(), tokenizer.eos_token(), tool_format);
}

nb::tuple render_chat(const Llm& llm, const std::string& messages_json, const std::string& tools_json,
                      const std::string& tool_format) {
  nlohmann::ordered_json tools;
  if (!tools_json.empty()) tools = parse_ordered_json(tools_json, "tools");
  const ChatFormat::Prompt prompt =
      chat_format(llm, tool_format)
          .render(parse_ordered_json(messages_json, "messages"), {.tools = tools.is_null() ? nullptr : &tools});
  return nb::make_tuple(prompt.text, prompt.in_reasoning);
}

// What a choice means: (content, reasoning, [(id, name, arguments)], whether it ends within a call).
nb::tuple read_chat(const Llm& llm, std::string text, std::vector<int32_t> ids, const std::string& tools_json,
                    const std::string& tool_format, bool in_reasoning) {
  const ChatFormat format = chat_format(llm, tool_format);
  const Tokenizer& tokenizer = tokenizer_of(llm);
  ChatParserOptions options{.calls = !tools_json.empty(), .reasoning = format.reasons(), .in_reasoning = in_reasoning};
  if (options.calls) options.tools = ToolSchemas(parse_ordered_json(tools_json, "tools"));
  if ((options.calls || options.reasoning) && format.has_special_marks(tokenizer)) {
    while (!ids.empty() && tokenizer.is_end(ids.back())) ids.pop_back();
    text = tokenizer.decode(ids, false);
  }
  const std::unique_ptr<ChatParser> parser = make_chat_parser(format.dialect(), options);
  ParsedChat chat;
  chat.add(parser->feed(text));
  chat.add(parser->finish());
  nb::list calls;
  for (const ParsedCall& call : chat.calls) calls.append(nb::make_tuple(call.id, call.name, call.arguments));
  return nb::make_tuple(chat.content, chat.reasoning, calls, parser->cut());
}

}  // namespace

void bind_llm(nb::module_& m) {
  nb::class_<StructuredOutput>(m, "StructuredOutput", "What an answer must be; use `structured` of ingot.LLM.")
      .def(
          "__init__",
          [](StructuredOutput* self, const std::string& kind, std::string text, std::vector<std::string> choices,
             bool strict, std::string param) {
            new (self) StructuredOutput;
            self->kind = structured_kind(kind);
            self->text = std::move(text);
            self->choices = std::move(choices);
            self->strict = strict;
            self->param = std::move(param);
          },
          nb::arg("kind") = "none", nb::arg("text") = "", nb::arg("choices") = std::vector<std::string>(),
          nb::arg("strict") = false, nb::arg("param") = "structured");

  nb::class_<Generation>(m, "Generation", "One request being served: the reader's end.")
      .def("take", &take, "What is new: a list of (choice, text, token_ids, scores, finish_reason).")
      .def_prop_ro("done", &Generation::done)
      .def("wait", &wait, nb::arg("seconds"), "Waits for something new; False when the time is over first.")
      .def("cancel", &Generation::cancel, nb::call_guard<nb::gil_scoped_release>())
      .def("summary", &summary)
      .def("prompt_scores", [](const Generation& g) { return to_scores(g.prompt_scores()); });

  nb::class_<Llm>(m, "LlmCore", "The native orchestrator; use ingot.LLM.")
      .def(nb::new_(&load_llm), nb::arg("model"), nb::arg("quantize"), nb::arg("device"), nb::arg("threads"),
           nb::arg("isa"), nb::arg("max_model_len"), nb::arg("kv_blocks"), nb::arg("kv_dtype"),
           nb::arg("max_step_tokens"), nb::arg("max_seqs"), nb::arg("prefix_caching"))
      .def("submit", &submit, nb::keep_alive<0, 1>(), nb::arg("prompt"), nb::arg("sampling"), nb::arg("random_seed"),
           nb::arg("max_tokens"), nb::arg("n"), nb::arg("stop"), nb::arg("bad_words"), nb::arg("ignore_eos"),
           nb::arg("logprobs"), nb::arg("prompt_logprobs"), nb::arg("structured"))
      .def(
          "compile", [](Llm& llm, StructuredOutput& structured) { llm.compile(structured); },
          nb::call_guard<nb::gil_scoped_release>(), nb::arg("structured"))
      .def("stats", &stats)
      .def("check_integrity", &Llm::check_integrity, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "encode",
          [](const Llm& llm, const std::string& text, bool add_special, bool parse_special) {
            return tokenizer_of(llm).encode(text, {.add_special = add_special, .parse_special = parse_special});
          },
          nb::arg("text"), nb::arg("add_special"), nb::arg("parse_special"))
      .def(
          "decode", [](const Llm& llm, const std::vector<int32_t>& ids) { return tokenizer_of(llm).decode(ids, true); },
          nb::arg("ids"))
      .def("render_chat", &render_chat, nb::arg("messages_json"), nb::arg("tools_json"), nb::arg("tool_format"))
      .def("read_chat", &read_chat, nb::arg("text"), nb::arg("token_ids"), nb::arg("tools_json"),
           nb::arg("tool_format"), nb::arg("in_reasoning"))
      .def_prop_ro("limits", &Llm::limits)
      .def_prop_ro("device", &Llm::device_description);
}

}  // namespace ingot::python
