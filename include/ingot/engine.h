#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/step.h"

namespace ingot {

class Group;  // collective/group.h

struct EngineOptions {
  std::string model;            // a GGUF file or a Hugging Face folder
  std::string device = "auto";  // auto, cpu, metal
  // auto: the weights of the model; dummy: random ones in the shapes of a folder's config.json, for measurements
  std::string load_format = "auto";
  std::string dtype = "auto";  // format of dummy weights: bf16, f16, f32, q8_0, q4_0, q4_k, ...; auto: the config's
  std::string quantize;        // int8 or int4: quantize plain weights while they are loaded; empty: as in the file
  int threads = 0;             // CPU: 0 = one a core this process may use
  std::string isa;             // CPU: force a path (portable, avx2, avx512, ...); empty: the best that runs
  bool profile = false;        // time every operation; steps are slower then
  int64_t max_model_len = 0;   // longest sequence; 0: the model's own, as far as memory allows
  int64_t kv_blocks = 0;       // 0: enough for max_seqs * max_model_len, capped by memory
  int64_t block_size = 16;
  std::string kv_dtype = "f16";  // f16, bf16, int8 or f32
  // Host memory for blocks that leave the device (Step::block_saves); -1: an eighth of what is free, at most 1 GiB
  int64_t host_cache_bytes = 0;
  int32_t max_step_tokens = 0;   // most rows in a step; 0: VLLM_METAL_MAX_BATCH_SIZE or the device's default
  int32_t max_seqs = 64;         // most sequences in a step, and sampler slots
  int32_t max_logits_rows = 16;  // most rows of full logits in a step
  bool embeddings = false;       // pool texts of models that are not made for it, too
  std::string pooling = "auto";  // auto: as the model's files say, else last; last, mean or cls (implies embeddings)
  // Rows give their hidden states on request (Step::state_rows): the residual stream as it enters these layers, for a
  // head that reads them; as many as there are: what leaves the last, normed. None named, but wanted: the second, the
  // middle and the third from the end.
  bool gives_states = false;
  std::vector<int> state_layers;
  std::string head_of;  // the model is a head that guesses for the one at this path; empty: it is a model
  // Ranks that have the model together, each in a process of its own: `tp` (1, 2 or 4) share the layers of each of `pp`
  // stages. `group` connects them: rank = stage * tp + share.
  int tp = 1, pp = 1;
  std::vector<int> pp_layers;  // of each stage; empty: by what they cost
  std::shared_ptr<Group> group;
  std::function<void(size_t done, size_t total)> progress;  // called while loading, in bytes; may be empty

  // CPU: weights are kept in files as they are packed for the kernels, and the next load takes them from there. off;
  // read: into memory of this process; map: the files' own pages, which processes share. Empty folder: `packed` in the
  // cache folder.
  std::string packed_cache = "off";
  std::string packed_cache_dir;
  uint64_t packed_cache_bytes = uint64_t{64} << 30;  // of all files; the least recently used make room

  int ranks() const { return tp * pp; }
};

// What an orchestrator must keep within; a step over any of them is refused by validate().
struct EngineLimits {
  int32_t max_step_tokens = 0;
  int32_t max_seqs = 0;
  int32_t max_sample_rows = 0;
  int32_t max_logits_rows = 0;
  int32_t max_top = 0;
  int64_t max_model_len = 0;
  int64_t num_blocks = 0;
  int64_t block_size = 0;
  int64_t host_blocks = 0;    // that Step::block_saves and block_loads may name
  bool moves_beside = false;  // what no row of their step touches is saved and loaded beside its rows
  int64_t vocab = 0;
  int32_t sampler_slots = 0;
  int64_t max_list_words =
      0;                    // token lists of the sampling parameters and sampler histories in a step, in 4-byte words
  Pooling pooling;          // none: Step::pooled must be empty
  int64_t state_width = 0;  // of a row's hidden states, in floats; 0: Step::state_rows must be empty
  int32_t max_state_rows = 0;  // of a step
  int64_t reads_width = 0;     // a head: of the states that it is given of the model; 0: it is a model
  int64_t token_ids = 0;       // that rows may have; 0: `vocab`. A head guesses among fewer than it reads
  int32_t steps_in_flight = 2;
  bool chains_tokens = true;  // token ids may name what the previous step samples; not where stages are apart
};

// What a loaded model is, in numbers.
struct ModelInfo {
  std::string architecture;   // "llama": the family's name
  std::string name;           // for people
  std::string weight_format;  // "q4_1", "bf16": what most of the weights are
  int64_t layers = 0;
  int64_t hidden = 0;  // width of the residual stream
  int64_t heads = 0;   // query heads
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t ffn = 0;      // width of the MLP
  int64_t experts = 0;  // 0: dense
  int64_t experts_per_token = 0;
  int64_t vocab = 0;
  int64_t max_position = 0;                   // longest sequence the model was made for
  std::vector<int32_t> eos_ids;               // any of them ends a text
  bool has_head = true;                       // false: it makes embeddings only
  bool reranks = false;                       // it was made to answer yes or no to a query and a document
  std::string query_prompt, document_prompt;  // what its makers put before texts that are searched by or for
  SamplingAdvice sampling;
  std::vector<int32_t> guessed_ids;  // a head: the model's token of each of its own; empty: the same
};

// What a head wants of the model that it guesses for: EngineOptions::state_layers.
struct HeadNeeds {
  std::vector<int> state_layers;
};

// What a loaded engine holds on its device, in bytes.
struct MemoryUse {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;  // activations of a step, within VLLM_METAL_SCRATCH_POOL_MB
  uint64_t work_bytes = 0;     // what the device's operations use beside them
  uint64_t sampler_bytes = 0;
  uint64_t io_bytes = 0;          // staged inputs and outputs of every step in flight
  uint64_t host_cache_bytes = 0;  // KV blocks in host memory, where that is the device's too
  uint64_t available_bytes = 0;   // before loading; 0: unknown, nothing is refused
  uint64_t found_bytes = 0;       // of weight_bytes: taken from the packed cache when they were loaded

  uint64_t total_bytes() const {
    return weight_bytes + kv_bytes + scratch_bytes + work_bytes + sampler_bytes + io_bytes + host_cache_bytes;
  }
};

// Where hashes of files are kept between two runs: a name of letters and digits for each.
struct FileNotes {
  std::function<std::string(const std::string& name)> get;  // empty: none
  std::function<void(const std::string& name, const std::string& hash)> set;
};

// Handle of a submitted step. At most EngineLimits::steps_in_flight are in flight; they are waited for in order.
struct StepTicket {
  uint64_t id = 0;
};

// Owns every tensor of one model on one device. Not thread-safe: one orchestrator thread calls it.
class Engine {
 public:
  // Opens the model, declines what it cannot run, plans memory, loads. Throws Error. One of several ranks must be
  // rank 0; the others follow() it (engine/follower.h).
  static std::unique_ptr<Engine> load(const EngineOptions& options);
  // Whether the checkpoint at `model` is a head that guesses tokens from the hidden states of the model at `beside`;
  // where both are the same, whether it has layers that do (MTP). Throws where it is one of a kind that is not run.
  static std::optional<HeadNeeds> head_needs(const std::string& model, const std::string& beside = "");
  ~Engine();

  const EngineLimits& limits() const;
  const ModelInfo& model() const;
  const MemoryUse& memory() const;
  const std::string& device_name() const;         // "cpu", "metal", "cuda"
  const std::string& device_description() const;  // for people

  // The bytes of a block of host memory, K and V of all layers in an order of the device's own: what a step saved there
  // once it was waited for, and what one loads that is submitted later. Nobody else touches them meanwhile.
  std::span<std::byte> host_block(int64_t block) const;
  // What these bytes depend on beside the tokens: the contents of the model's files (with RoPE and all settings), how
  // they were loaded, KV type, block size, device, instruction set, and a version of the numerics. Reads all of the
  // files once; the hash is in `notes` then, under their names, sizes and times.
  std::string identity(const FileNotes& notes) const;

  // Throws StepError naming field, index and limit; the engine's state is untouched.
  void validate(const Step& step) const;

  // Validates, stages, encodes and submits. Returns while the device runs.
  StepTicket submit(const Step& step);
  // The one wait. Throws Error(device) when the step failed; the next step works.
  StepResult wait(StepTicket ticket);
  StepResult run(const Step& step) { return wait(submit(step)); }

  // With no step in flight and nobody waiting: times one of the ways that the device has to the same bits, for
  // milliseconds, or a second where it is compiled first. False: there is nothing to time, or nothing left.
  bool tune();

  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

 private:
  friend struct EngineInternals;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
