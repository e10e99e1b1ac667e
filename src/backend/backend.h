#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/counters.h"
#include "backend/inventory.h"
#include "backend/kv_layout.h"
#include "backend/matrix.h"
#include "backend/op.h"
#include "backend/packed_cache.h"
#include "backend/profile.h"
#include "backend/tuner.h"
#include "core/dtype.h"

// What a device must do: a dozen fused LLM operations (op.h), each *encoded* during a step and run after submit(). It
// is not a tensor library: there is no general graph, no shape inference, no allocation inside a step.
//
// Words used everywhere: a *row* is one token of the step; a *sequence* owns consecutive rows; a *block* is
// `block_size` cache slots; T rows, S sequences, R sampled rows, D decode rows (they come first, one a decode
// sequence).
namespace ingot {

struct DeviceInfo {
  std::string name;               // "cpu", "metal", "cuda"
  std::string description;        // "AVX-512 (VNNI, BF16), 2 threads"
  std::string numerics;           // what its results depend on, to the last bit: its instruction set, say
  DType activation = DType::f32;  // of every activation except the residual stream and the logits, which are f32
  uint64_t memory_bytes = 0;      // what the device could give a model, 0 when unknown
  bool own_memory = false;        // apart from the host's
  bool moves_beside = false;      // blocks are saved and loaded beside the rows of a step
  int32_t step_tokens = 2048;     // most rows in a step when nobody asks for more or less
  std::string kernels;            // where they come from, for people; empty: they are part of the program
  std::string tuning;             // what was chosen by timing, for people; empty: there is nothing to choose
  std::string path;               // how it computes: devices of the same have the same bits; empty: one way only
};

// What of a model decides whether a device can run it.
struct ModelShape {
  int64_t heads = 0, kv_heads = 0, head_size = 0, rope_dims = 0;
  int64_t experts = 0, experts_per_token = 0;
  int ranks = 1;  // that share it
};

// The largest that a device's kernels take.
struct ModelLimits {
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  std::string runs;          // "the CPU runs": how reasons go on
  int64_t head_size = kAny;  // and a multiple of 8
  int64_t group = kAny;      // query heads a KV head
  int64_t experts = kAny, experts_per_token = kAny;
  std::string no_bf16_cache;  // why there can be none; empty: there can
  std::string no_groups;      // why it cannot be one of several ranks; empty: it can
};

// A device: what all of them do alike is here, what each does in its own way are the virtuals at the end. It may be
// used by one thread at a time. Rings must be waited for in the order of submission.
class Backend {
 public:
  virtual ~Backend() = default;
  const DeviceInfo& info() const { return info_; }
  const DeviceCounters& counters() const { return counters_; }

  // A reason this device cannot run the model, for a person; nothing when it can.
  std::optional<std::string> decline(const ModelShape& model, const KvLayout& kv) const;

  // -- for the memory plan: bytes on the device --
  virtual size_t matrix_bytes(const MatrixSpec& spec) const = 0;
  virtual size_t sampler_bytes(const SamplerLayout& layout) const = 0;
  // What the device uses of its own beside scratch, for `rows` rows and matrices of `cols` columns.
  virtual size_t work_bytes(int64_t rows, int64_t cols) const = 0;
  // The same of sums of slices (MatrixSpec::slices), `dim` of them a row.
  virtual size_t slice_bytes(int64_t /*rows*/, int64_t /*dim*/) const { return 0; }
  // Of mailboxes, where it has such, for what ranks send and receive at once, in bytes.
  virtual size_t mailbox_bytes(size_t /*sent*/, size_t /*received*/) const { return 0; }

  // -- load: everything is allocated here, once --
  // Before the first weight: matrices are kept as they were packed, and found there. False: not by this device.
  virtual bool keep_packed(const PackedCacheOptions& /*options*/) { return false; }
  // The next matrix, where it is kept; its tensors need no bytes then. Nothing: load_matrix() is to follow.
  std::optional<WeightId> find_matrix(const MatrixSpec& spec);
  WeightId load_matrix(const MatrixSpec& spec);
  WeightId load_vector(const std::string& name, std::span<const float> values);
  virtual void end_weights() {}                       // all are loaded, and what is packed may be written
  virtual uint64_t found_bytes() const { return 0; }  // of the weights: those that find_matrix() gave
  void create_scratch(size_t bytes);
  void create_kv_cache(const KvLayout& layout);
  void create_host_blocks(int64_t count);  // of the cache's size; before create_io()
  void create_sampler(const SamplerLayout& layout);
  void create_io(size_t stage_bytes, const OutputLayout& output, int rings = 2);

  // Encodes a step like those to come without running it, so that what it needs (compiled kernels, work memory) is
  // there when it comes. Only the numbers of `step` are looked at, none of its arrays.
  void rehearse(const StagedStep& step, const std::function<void()>& encode);

  // -- outside a step: explicit copies, for tests and tools. K or V of one layer, whole --
  void write_scratch(Region region, std::span<const std::byte> bytes);
  void read_scratch(Region region, std::span<std::byte> bytes);
  void write_cache(int64_t layer, bool value, std::span<const std::byte> bytes);
  void read_cache(int64_t layer, bool value, std::span<std::byte> bytes);

  // A block of host memory: Step::block_saves, block_loads.
  std::span<std::byte> host_block(int64_t block) const;

  // -- a step: stage, begin, operations in order, submit, wait. One may be in flight on each ring; what operations
  // leave for the next step (sampled tokens) is kept of two --
  std::span<std::byte> stage(int ring) { return ring_at(ring).stage; }
  void begin(const StagedStep& step);  // also encodes its PrepareOp
  void encode(const Op& op);
  void submit();
  StepTimes wait(int ring);  // throws Error(device) when the step failed
  std::span<const std::byte> output(int ring);

  // Called as soon as a step is known to have failed, from any thread: other ranks wait for what it would have sent.
  void on_failure(std::function<void(const std::string& why)> told) { failed_ = std::move(told); }

  // Where the time went since the last call, of a device that was made to profile; empty of others.
  virtual Profile take_profile() { return {}; }

  // Of a device that has several ways to the same bits: null of others. Steps must have been rehearsed.
  virtual Tuner* tuner() { return nullptr; }

  // For tests: the next steps fail as if the device had.
  void inject_failure(int steps = 1) { failures_due_ = steps; }

 protected:
  explicit Backend(std::string who) { has_.who = std::move(who); }
  // What a device says of itself when it is made.
  void describe(DeviceInfo info, ModelLimits limits);
  std::string failure() const { return has_.who + ": the step failed on the device; its outputs are lost"; }
  // on_failure(), if somebody is to be told.
  void tell_failure(const std::string& why) const {
    if (failed_) failed_(why);
  }
  bool in_flight(size_t ring) const { return rings_[ring].submitted; }

  Inventory has_;
  DeviceCounters counters_;

 private:
  // -- what a device does its own way --
  // Keeps the weight under the next number; the bytes it takes.
  virtual size_t add_matrix(const MatrixSpec& spec) = 0;
  virtual std::optional<size_t> add_found(const MatrixSpec& /*spec*/) { return std::nullopt; }
  virtual size_t add_vector(const std::string& name, std::span<const float> values) = 0;
  virtual void make_scratch(size_t bytes) = 0;
  virtual void make_kv_cache(const KvLayout& layout) = 0;
  // A span for each block, of `bytes`: K, then V of each layer, as the device keeps them.
  virtual std::vector<std::span<std::byte>> make_host_blocks(int64_t count, size_t bytes) = 0;
  virtual void make_sampler(const SamplerLayout& layout) = 0;
  // A stage for each ring.
  virtual std::vector<std::span<std::byte>> make_io(size_t stage_bytes, const OutputLayout& output, int rings) = 0;
  virtual void copy_to(Region region, std::span<const std::byte> bytes) = 0;
  virtual void copy_from(Region region, std::span<std::byte> bytes) = 0;
  virtual void copy_to_cache(int64_t layer, bool value, std::span<const std::byte> bytes) = 0;
  virtual void copy_from_cache(int64_t layer, bool value, std::span<std::byte> bytes) = 0;
  // False: there is nothing to be made ready.
  virtual bool begin_rehearsal() { return false; }
  virtual void end_rehearsal() {}
  // Of has_.step. A step that was begun and never submitted is dropped.
  virtual void begin_step(int ring) = 0;
  virtual void take(const Op& op) = 0;  // checked, and with something to do
  virtual void submit_step(int ring) = 0;
  virtual void finish_step(int ring, StepTimes& times) = 0;  // waits for it
  virtual std::span<const std::byte> output_of(int ring) = 0;

  enum class Phase { idle, rehearsing, encoding };
  struct Ring {
    std::span<std::byte> stage;
    bool submitted = false;
    bool fails = false;
    StepTimes times;
  };
  Ring& ring_at(int ring) { return rings_.at(static_cast<size_t>(ring)); }
  void check_idle(const char* call) const;
  void check_cache(int64_t layer, size_t bytes) const;
  WeightId add(WeightSize size);

  DeviceInfo info_;
  ModelLimits limits_;
  std::vector<std::span<std::byte>> host_blocks_;
  std::vector<Ring> rings_ = std::vector<Ring>(2);
  Phase phase_ = Phase::idle;
  std::function<void(const std::string& why)> failed_;
  bool failing_ = false;  // the step being encoded is to fail: it does nothing
  std::atomic<int> failures_due_{0};
};

}  // namespace ingot
