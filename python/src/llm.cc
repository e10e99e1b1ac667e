#include "ingot/llm.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bell.h"
#include "core/embedding.h"
#include "core/error.h"
#include "llm_core.h"
#include "module.h"

// The orchestrator as _ingot.LlmCore: what ingot/llm.py is made of.
namespace ingot::python {
namespace {

constexpr std::chrono::milliseconds kSignals(50);  // between two looks whether Ctrl-C was pressed

// On a thread of its own, so that Ctrl-C is seen: loading ends with the tensor it is at.
std::shared_ptr<Llm> load(LlmOptions options) {
  std::atomic<bool> interrupted{false};
  options.engine.progress = [&interrupted](size_t, size_t) {
    if (interrupted) throw_error(ErrorKind::cancelled, "loading was interrupted");
  };
  std::future<std::unique_ptr<Llm>> loading =
      std::async(std::launch::async, [options = std::move(options)] { return Llm::load(options); });
  for (;;) {
    {
      const nb::gil_scoped_release release;
      if (loading.wait_for(kSignals) == std::future_status::ready) break;
    }
    if (PyErr_CheckSignals() == 0) continue;
    nb::python_error error;
    interrupted = true;
    {
      const nb::gil_scoped_release release;
      loading.wait();
    }
    throw error;
  }
  return loading.get();
}

std::unique_ptr<LlmCore> load_core(std::string model, std::string quantize, std::string device, int threads,
                                   std::string isa, int64_t max_model_len, int64_t kv_blocks, std::string kv_dtype,
                                   int32_t max_step_tokens, int32_t max_seqs, bool prefix_caching, bool embeddings,
                                   std::string pooling, int64_t prefix_ram, std::string prefix_dir,
                                   uint64_t prefix_dir_bytes, std::string packed_cache, std::string packed_cache_dir,
                                   uint64_t packed_cache_bytes, const std::string& speculate,
                                   const std::string& draft_model) {
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
  options.engine.embeddings = embeddings;
  options.engine.pooling = std::move(pooling);
  options.engine.host_cache_bytes = prefix_ram;
  options.prefix_dir = std::move(prefix_dir);
  if (prefix_dir_bytes > 0) options.prefix_dir_bytes = prefix_dir_bytes;
  options.engine.packed_cache = std::move(packed_cache);
  options.engine.packed_cache_dir = std::move(packed_cache_dir);
  if (packed_cache_bytes > 0) options.engine.packed_cache_bytes = packed_cache_bytes;
  choose_speculation(options, speculate, draft_model);
  return std::make_unique<LlmCore>(load(std::move(options)));
}

std::shared_ptr<Generation> submit(const LlmCore& core, const GenerationRequest& request,
                                   const std::shared_ptr<const Bell>& bell) {
  const std::shared_ptr<Llm> llm = core.llm();
  std::function<void()> notify;
  if (bell) notify = [bell] { bell->ring(); };
  const nb::gil_scoped_release release;
  return llm->submit(request, std::move(notify));
}

// (token, logprob, rank, [(token, logprob) of the most likely]), one a token
nb::list to_scores(const std::vector<TokenScore>& scores) {
  nb::list result;
  for (const TokenScore& score : scores) {
    nb::list top;
    for (const TokenLogprob& t : score.top) top.append(nb::make_tuple(t.token, t.logprob));
    result.append(nb::make_tuple(score.token, score.logprob, score.rank, top));
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
                                 std::string(to_string(delta.finish)), delta.stop_reason));
  return result;
}

// Of a request that asked for one, once it is done.
std::vector<float> embedding(Generation& generation, size_t dimensions) {
  for (ChoiceDelta& delta : generation.take())
    if (!delta.embedding.empty()) {
      if (dimensions > delta.embedding.size())
        throw_bad_parameter("dimensions", "is {}, but the model's vectors have {}", dimensions, delta.embedding.size());
      return front_of(std::move(delta.embedding), dimensions);
    }
  return {};
}

bool wait(Generation& generation, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    bool news = false;
    {
      const nb::gil_scoped_release release;
      news = generation.wait(kSignals);
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

nb::dict stats(const LlmCore& core) {
  const LlmStats s = core.llm()->stats();
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
  result["prefix_host_hits"] = s.prefix_host_hits;
  result["prefix_disk_hits"] = s.prefix_disk_hits;
  result["draft_tokens"] = s.draft_tokens;
  result["accepted_tokens"] = s.accepted_tokens;
  result["refused"] = s.refused;
  return result;
}

void compile(const LlmCore& core, StructuredOutput& structured) {
  const std::shared_ptr<Llm> llm = core.llm();
  const nb::gil_scoped_release release;
  llm->compile(structured);
}

std::vector<std::string> check_integrity(const LlmCore& core) {
  const std::shared_ptr<Llm> llm = core.llm();
  const nb::gil_scoped_release release;
  return llm->check_integrity();
}

std::vector<int32_t> encode(const LlmCore& core, const std::string& text, bool add_special, bool parse_special) {
  const std::shared_ptr<const Tokenizer> tokenizer = core.tokenizer();
  const nb::gil_scoped_release release;
  return tokenizer->encode(text, {.add_special = add_special, .parse_special = parse_special});
}

void bind_generation(nb::module_& m) {
  nb::class_<Bell>(m, "Bell", "A file that becomes readable when a generation has news.")
      .def(nb::init<>())
      .def("fileno", &Bell::fileno)
      .def("silence", &Bell::silence);
  nb::class_<Generation>(m, "Generation", "One request being served: the reader's end.")
      .def("take", &take, "What is new: a list of (choice, text, token_ids, scores, finish_reason, stop_reason).")
      .def("embedding", &embedding, nb::arg("dimensions"), "The vector of a text; 0 dimensions: all.")
      .def_prop_ro("done", &Generation::done)
      .def("wait", &wait, nb::arg("seconds"), "Waits for something new; False when the time is over first.")
      .def("cancel", &Generation::cancel, nb::call_guard<nb::gil_scoped_release>())
      .def("summary", &summary)
      .def_prop_ro("read_tokens", [](const Generation& g) { return g.summary().read_tokens; })
      .def("prompt_scores", [](const Generation& g) { return to_scores(g.prompt_scores()); });
}

}  // namespace

void bind_llm(nb::module_& m) {
  bind_generation(m);
  nb::class_<LlmCore>(m, "LlmCore", "The native orchestrator; use ingot.LLM.")
      .def(nb::new_(&load_core), nb::arg("model"), nb::arg("quantize"), nb::arg("device"), nb::arg("threads"),
           nb::arg("isa"), nb::arg("max_model_len"), nb::arg("kv_blocks"), nb::arg("kv_dtype"),
           nb::arg("max_step_tokens"), nb::arg("max_seqs"), nb::arg("prefix_caching"), nb::arg("embeddings"),
           nb::arg("pooling"), nb::arg("prefix_ram"), nb::arg("prefix_dir"), nb::arg("prefix_dir_bytes"),
           nb::arg("packed_cache"), nb::arg("packed_cache_dir"), nb::arg("packed_cache_bytes"), nb::arg("speculate"), nb::arg("draft_model"))
      .def("submit", &submit, nb::arg("request"), nb::arg("bell").none() = nb::none())
      .def("compile", &compile, nb::arg("structured"))
      .def("close", &LlmCore::close)
      .def_prop_ro("closed", &LlmCore::closed)
      .def("stats", &stats)
      .def("check_integrity", &check_integrity)
      .def("encode", &encode, nb::arg("text"), nb::arg("add_special"), nb::arg("parse_special"))
      .def(
          "decode",
          [](const LlmCore& core, const std::vector<int32_t>& ids, bool skip_special) {
            return core.tokenizer()->decode(ids, skip_special);
          },
          nb::arg("ids"), nb::arg("skip_special"))
      .def_prop_ro("has_tokenizer", [](const LlmCore& core) { return core.llm()->tokenizer() != nullptr; })
      .def_prop_ro("limits", [](const LlmCore& core) { return core.llm()->limits(); })
      .def_prop_ro("device", [](const LlmCore& core) { return core.llm()->device_description(); });
}

}  // namespace ingot::python
