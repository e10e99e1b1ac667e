#include "ingot/engine.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/group.h"
#include "engine/loader.h"
#include "engine/memory_plan.h"
#include "engine_thread.h"
#include "follower_thread.h"
#include "module.h"
#include "step_result.h"

namespace ingot::python {
namespace {

class PyEngine {
 public:
  explicit PyEngine(std::unique_ptr<Engine> engine) : thread_(std::move(engine)) {}

  const Engine& get() const { return thread_.engine(); }

  void validate(const Step& step) {
    const nb::gil_scoped_release release;
    thread_.validate(step);
  }
  uint64_t submit(const Step& step) {
    const nb::gil_scoped_release release;
    return thread_.submit(step);
  }
  ResultArrays wait(uint64_t ticket, bool overlap) {
    return take([&] { return thread_.wait(ticket, overlap); });
  }
  ResultArrays run(const Step& step) {
    return take([&] { return thread_.run(step); });
  }

 private:
  template <typename F>
  ResultArrays take(F f) {
    StepResult result;
    {
      const nb::gil_scoped_release release;
      result = f();
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return to_arrays(result);
  }

  EngineThread thread_;
};

EngineOptions make_options(std::string model, std::string load_format, std::string quantize, std::string device,
                           int threads, std::string isa, int64_t max_model_len, int64_t kv_blocks, int64_t block_size,
                           std::string kv_dtype, int32_t max_step_tokens, int32_t max_seqs, int32_t max_logits_rows,
                           int tp, int pp, std::vector<int> pp_layers) {
  EngineOptions options;
  options.model = std::move(model);
  options.load_format = std::move(load_format);
  options.quantize = std::move(quantize);
  options.device = std::move(device);
  options.threads = threads;
  options.isa = std::move(isa);
  options.max_model_len = max_model_len;
  options.kv_blocks = kv_blocks;
  options.block_size = block_size;
  options.kv_dtype = std::move(kv_dtype);
  options.max_step_tokens = max_step_tokens;
  options.max_seqs = max_seqs;
  options.max_logits_rows = max_logits_rows;
  options.tp = tp;
  options.pp = pp;
  options.pp_layers = std::move(pp_layers);
  return options;
}

template <typename... Args>
std::unique_ptr<PyEngine> load(Args... args, std::shared_ptr<Group> group) {
  EngineOptions options = make_options(std::move(args)...);
  options.group = std::move(group);
  const nb::gil_scoped_release release;
  return std::make_unique<PyEngine>(Engine::load(options));
}

template <typename... Args>
std::unique_ptr<FollowerThread> follow(Args... args, std::shared_ptr<Group> group) {
  EngineOptions options = make_options(std::move(args)...);
  options.group = std::move(group);
  const nb::gil_scoped_release release;
  return std::make_unique<FollowerThread>(std::move(options));
}

template <typename... Args>
ModelInspection inspect(Args... args, int rank) {
  const EngineOptions options = make_options(std::move(args)...);
  const nb::gil_scoped_release release;
  return inspect_model(options, rank);
}

// The arguments of make_options, for those three alike.
#define INGOT_ENGINE_TYPES                                                                                      \
  std::string, std::string, std::string, std::string, int, std::string, int64_t, int64_t, int64_t, std::string, \
      int32_t, int32_t, int32_t, int, int, std::vector<int>
#define INGOT_ENGINE_ARGS                                                                                            \
  nb::arg("model"), nb::kw_only(),                                                                                   \
      nb::arg("load_format") = "auto", nb::arg("quantize") = "", nb::arg("device") = "auto", nb::arg("threads") = 0, \
      nb::arg("isa") = "", nb::arg("max_model_len") = 0, nb::arg("kv_blocks") = 0, nb::arg("block_size") = 16,       \
      nb::arg("kv_dtype") = "f16", nb::arg("max_step_tokens") = 0, nb::arg("max_seqs") = 64,                         \
      nb::arg("max_logits_rows") = 16, nb::arg("tp") = 1, nb::arg("pp") = 1, nb::arg("pp_layers") = std::vector<int>()

nb::dict memory(const MemoryUse& plan) {
  nb::dict result;
  result["weights"] = plan.weight_bytes;
  result["kv_cache"] = plan.kv_bytes;
  result["scratch"] = plan.scratch_bytes;
  result["work"] = plan.work_bytes;
  result["sampler"] = plan.sampler_bytes;
  result["io"] = plan.io_bytes;
  result["total"] = plan.total_bytes();
  result["available"] = plan.available_bytes;
  return result;
}

nb::dict config(const ModelInfo& c) {
  nb::dict result;
  result["architecture"] = c.architecture.c_str();
  result["name"] = c.name.c_str();
  result["hidden"] = c.hidden;
  result["layers"] = c.layers;
  result["heads"] = c.heads;
  result["kv_heads"] = c.kv_heads;
  result["head_size"] = c.head_size;
  result["ffn"] = c.ffn;
  result["vocab"] = c.vocab;
  result["max_position"] = c.max_position;
  result["weight_format"] = c.weight_format.c_str();
  return result;
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<EngineLimits>(m, "EngineLimits", "What a step must keep within; a step over any of them is refused.")
      .def_ro("max_step_tokens", &EngineLimits::max_step_tokens)
      .def_ro("max_seqs", &EngineLimits::max_seqs)
      .def_ro("max_sample_rows", &EngineLimits::max_sample_rows)
      .def_ro("max_logits_rows", &EngineLimits::max_logits_rows)
      .def_ro("max_top", &EngineLimits::max_top)
      .def_ro("max_model_len", &EngineLimits::max_model_len)
      .def_ro("num_blocks", &EngineLimits::num_blocks)
      .def_ro("block_size", &EngineLimits::block_size)
      .def_ro("vocab", &EngineLimits::vocab)
      .def_ro("sampler_slots", &EngineLimits::sampler_slots)
      .def_ro("max_list_words", &EngineLimits::max_list_words);

  nb::class_<ModelInspection>(m, "Inspection", "What Engine() would do with a model, found out without loading it.")
      .def_prop_ro(
          "limits", [](const ModelInspection& i) { return i.plan.limits; }, "EngineLimits")
      .def_prop_ro(
          "memory", [](const ModelInspection& i) { return memory(i.plan); }, "a dict of the memory plan, in bytes")
      .def_prop_ro(
          "config", [](const ModelInspection& i) { return config(describe(i.config)); },
          "a dict of the model's dimensions")
      .def_prop_ro(
          "kv_heads", [](const ModelInspection& i) { return i.plan.kv.kv_heads; }, "KV heads that the rank has")
      .def_prop_ro(
          "layers",
          [](const ModelInspection& i) { return nb::make_tuple(i.share.stage.layers.begin, i.share.stage.layers.end); },
          "(first, end): the layers that the rank has");
  m.def("inspect", &inspect<INGOT_ENGINE_TYPES>, INGOT_ENGINE_ARGS, nb::arg("rank") = 0,
        "Plans a model as Engine() would, without loading it; raises what that would raise. `rank`: of those that "
        "share it.");

  nb::class_<PyEngine>(m, "Engine",
                       "One model on one device: Steps in, tokens out. It owns every tensor; the caller holds block "
                       "numbers only. At most two steps are in flight and they are waited for in order. The GIL is "
                       "released while the engine loads or runs.")
      .def(nb::new_(&load<INGOT_ENGINE_TYPES>), INGOT_ENGINE_ARGS, nb::arg("group").none() = nb::none(),
           "Loads a GGUF file or a Hugging Face folder (`load_format=\"dummy\"`: made-up weights in its shapes). "
           "Raises Error with kind \"declined\" and the reason when this "
           "engine does not run the model. 0 leaves a size to the engine. `tp` ranks share the layers of each "
           "of `pp` stages where `group` connects them: this is rank 0, the others are Followers.")
      .def_prop_ro(
          "limits", [](const PyEngine& e) { return e.get().limits(); }, "EngineLimits")
      .def_prop_ro(
          "device", [](const PyEngine& e) { return e.get().device_description(); }, "the device, in words")
      .def_prop_ro(
          "memory", [](const PyEngine& e) { return memory(e.get().memory()); }, "a dict of the memory plan, in bytes")
      .def_prop_ro(
          "config", [](const PyEngine& e) { return config(e.get().model()); }, "a dict of the model's dimensions")
      .def("validate", &PyEngine::validate, nb::arg("step"), "Raises StepError when the step would be refused.")
      .def("submit", &PyEngine::submit, nb::arg("step"),
           "Validates, stages and submits a step; returns its ticket while the device runs.")
      .def("wait", &PyEngine::wait, nb::arg("ticket"), nb::arg("overlap") = false,
           "The one wait for a step. Raises Error when it failed. `overlap`: another thread plans the next step and is "
           "let in first, for up to half of the time a step takes.")
      .def("run", &PyEngine::run, nb::arg("step"), "submit() and wait() in one call.");

  nb::class_<FollowerThread>(
      m, "Follower",
      "A rank other than 0 of those that share a model: it runs the steps that rank 0 hands out, on a "
      "thread of its own, until rank 0 is gone.")
      .def(nb::new_(&follow<INGOT_ENGINE_TYPES>), INGOT_ENGINE_ARGS, nb::arg("group"),
           "Loads this rank's share; the options that decide what is computed are rank 0's.");
}

}  // namespace ingot::python
