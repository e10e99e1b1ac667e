#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/memory.h"
#include "backend/op.h"
#include "core/threads.h"
#include "step/view.h"

namespace ingot::cpu {

// How one step's attention is cut into tasks. Made on the host when the step begins.
struct AttentionTasks {
  // Decode: sequence s has tasks [decode_task[s], decode_task[s + 1]) for each KV head. Either one task a split, whose
  // partial states go to slots decode_slot[s] + split, or (slot -1) one task for everything.
  int32_t* decode_task = nullptr;   // [decode sequences + 1]
  int32_t* decode_slot = nullptr;   // [decode sequences]
  int32_t* prefill_task = nullptr;  // [prefill sequences + 1], likewise, a task for every prefill_rows rows
  int32_t prefill_rows = 0;
  int32_t decode_seqs = 0;
  int32_t prefill_seqs = 0;
};

struct Job;

// Paged attention over the KV cache. The result of a row depends on its sequence alone: scores, weights and sums are
// always taken over the same tiles and splits in the same order, see kernels/attention.inl.
class Attention {
 public:
  // Rows of one prefill task: as many as share the work on keys and values well, but in a small step as few as it takes
  // to keep every worker busy.
  static constexpr int kMostPrefillRows = 16;
  static constexpr int kFewestPrefillRows = 2;

  Attention(const KvCache& cache, const Kernels& kernels, int workers);
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Room for the tasks of steps of at most `seqs` sequences, one on each ring.
  void reserve_tasks(int64_t seqs, size_t rings);
  const AttentionTasks& tasks(const StepView& view);

  void run(const AttentionOp& op, const Job& job);

 private:
  struct Scratch;  // of one worker
  struct Call;     // an operation with its memory
  struct Task;     // of decoding: some KV heads of a sequence, or of one of its splits

  static int64_t split_prefill(const StepView& view, AttentionTasks& tasks);
  Scratch scratch(int worker) const;
  void decode(const Call& call, Worker& worker);
  void prefill_write(const Call& call, Worker& worker);
  void prefill(const Call& call, Worker& worker);
  Task task_of(const Call& call, int64_t seq, int64_t part, int64_t kv_head, int64_t heads) const;
  void decode_task(const Call& call, const Task& task, const CacheRange& next, const Scratch& scratch);
  void ask_for(const CacheRange& range, int64_t heads) const;
  void prefill_task(const Call& call, int64_t seq, int64_t tile, int64_t kv_head, const Scratch& scratch);
  void load_query(const Call& call, int64_t row, int64_t kv_head, bool rotate, float* q) const;
  void write_row(const Call& call, int64_t row, int64_t kv_head, float* key) const;
  AttentionArgs cache_args(const Call& call, int64_t seq, int64_t kv_head, const Scratch& scratch) const;
  void attend_all(const AttentionArgs& args, const Scratch& scratch) const;

  const KvCache& cache_;
  const Kernels& kernels_;
  int workers_ = 1;
  int64_t partial_slots_ = 0;
  int64_t max_group_ = 0;  // largest heads / kv_heads that may be split
  size_t worker_bytes_ = 0;
  Pages worker_memory_;
  Pages partials_;  // [partial_slots, kv_heads, group, softmax_stride]
  Pages finished_;  // int32 atomics [partial_slots, kv_heads], at a sequence's first slot: how many splits are done
  int64_t max_seqs_ = 0;
  Pages plan_memory_;
  std::vector<AttentionTasks> tasks_;  // by ring
};

}  // namespace ingot::cpu
