#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ingot/llm.h"
#include "llm_core.h"
#include "module.h"

// What ingot.SamplingParams becomes: one line a parameter, under the name that vLLM has for it.
namespace ingot::python {
namespace {

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

void bind_structured(nb::module_& m) {
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
}

// A request that says nothing yet is sampled as the model's makers advise.
void make_request(GenerationRequest* self, const LlmCore& core, std::vector<int32_t> prompt) {
  new (self) GenerationRequest;
  self->prompt = std::move(prompt);
  self->sampling = core.llm()->model().sampling.over(SamplingParams());
  self->random_seed = true;
}

template <typename T>
void def_sampling(nb::class_<GenerationRequest>& c, const char* name, T SamplingParams::* member) {
  c.def_prop_rw(
      name, [member](const GenerationRequest& r) { return r.sampling.*member; },
      [member](GenerationRequest& r, T value) { r.sampling.*member = std::move(value); });
}

}  // namespace

void bind_request(nb::module_& m) {
  bind_structured(m);
  nb::class_<GenerationRequest> c(m, "Request", "A prompt and how it is answered; use ingot.SamplingParams.");
  c.def("__init__", &make_request, nb::arg("core"), nb::arg("prompt"));
  def_sampling(c, "temperature", &SamplingParams::temperature);
  def_sampling(c, "top_k", &SamplingParams::top_k);
  def_sampling(c, "top_p", &SamplingParams::top_p);
  def_sampling(c, "min_p", &SamplingParams::min_p);
  def_sampling(c, "presence_penalty", &SamplingParams::presence_penalty);
  def_sampling(c, "frequency_penalty", &SamplingParams::frequency_penalty);
  def_sampling(c, "repetition_penalty", &SamplingParams::repetition_penalty);
  def_sampling(c, "min_tokens", &SamplingParams::min_tokens);
  def_sampling(c, "stop_token_ids", &SamplingParams::stop_token_ids);
  def_sampling(c, "allowed_token_ids", &SamplingParams::allowed_token_ids);
  c.def_prop_rw(
      "seed", [](const GenerationRequest& r) { return r.sampling.seed; },
      [](GenerationRequest& r, uint64_t seed) {
        r.sampling.seed = seed;
        r.random_seed = false;
      });
  c.def_prop_rw(
      "logit_bias",
      [](const GenerationRequest& r) {
        return std::map<int32_t, float>(r.sampling.logit_bias.begin(), r.sampling.logit_bias.end());
      },
      [](GenerationRequest& r, const std::map<int32_t, float>& bias) {
        r.sampling.logit_bias.assign(bias.begin(), bias.end());
      });
  c.def_prop_rw(
      "stop", [](const GenerationRequest& r) { return r.stop.texts(); },
      [](GenerationRequest& r, std::vector<std::string> texts) { r.stop = StopStrings(std::move(texts)); });
  c.def_prop_rw(
      "timeout", [](const GenerationRequest&) { return nb::none(); },
      [](GenerationRequest& r, double seconds) {
        using Clock = std::chrono::steady_clock;
        r.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
      });
  c.def_rw("max_tokens", &GenerationRequest::max_tokens)
      .def_rw("embed", &GenerationRequest::embed)
      .def_rw("n", &GenerationRequest::n)
      .def_rw("best_of", &GenerationRequest::best_of)
      .def_rw("use_beam_search", &GenerationRequest::beam_search)
      .def_rw("length_penalty", &GenerationRequest::length_penalty)
      .def_rw("early_stopping", &GenerationRequest::early_stopping)
      .def_rw("bad_words", &GenerationRequest::bad_words)
      .def_rw("include_stop_str_in_output", &GenerationRequest::include_stop)
      .def_rw("ignore_eos", &GenerationRequest::ignore_eos)
      .def_rw("skip_special_tokens", &GenerationRequest::skip_special_tokens)
      .def_rw("logprobs", &GenerationRequest::logprobs)
      .def_rw("prompt_logprobs", &GenerationRequest::prompt_logprobs)
      .def_rw("priority", &GenerationRequest::priority)
      .def_rw("cache_salt", &GenerationRequest::cache_salt)
      .def_rw("speculate", &GenerationRequest::speculate)
      .def_rw("structured", &GenerationRequest::structured)
      .def_rw("thinking_budget", &GenerationRequest::thinking_budget);
}

}  // namespace ingot::python
