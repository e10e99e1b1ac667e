#include "backend/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "backend/cpu/ops.h"
#include "core/ceil_div.h"
#include "core/error.h"

namespace ingot::cpu {
namespace {

constexpr float kLog2e = 1.44269504f;

// So that the last ones to end leave little idle, where there is so much work.
constexpr int64_t kDecodeTasksPerWorker = 8;

int64_t first_visible(const AttentionShape& shape, int64_t position) {
  return shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) : 0;
}

// Totals that nothing has been merged into.
void clear_states(float* states, int64_t rows, int64_t head_size) {
  const int64_t stride = softmax_stride(head_size);
  std::memset(states, 0, static_cast<size_t>(rows * stride) * sizeof(float));
  for (int64_t r = 0; r < rows; ++r)
    states[r * stride + padded_head(head_size)] = -std::numeric_limits<float>::infinity();
}

// The last index whose prefix is not above `task`.
int64_t find_task(const int32_t* prefix, int64_t n, int64_t task) {
  return std::upper_bound(prefix, prefix + n, task) - prefix - 1;
}

}  // namespace

struct Attention::Scratch {
  float* q;           // [kMaxAttentionRows, head_size]
  float* total;       // [kMaxAttentionRows, softmax_stride]
  float* part;        // the same
  float* weights;     // [kMaxAttentionRows, kTileKeys]
  float* key_tile;    // [head_size, kTileKeys]
  float* value_tile;  // [kTileKeys, padded_head]
  float* key;         // [head_size]
  int32_t* first;     // [kMaxAttentionRows]
  int32_t* last;
};

struct Attention::Call {
  const AttentionOp& op;
  const AttentionShape& shape;
  const StepView& view;
  const AttentionTasks& tasks;
  float* qkv;         // [T, (heads + 2 kv_heads) * head_size]
  const float* rope;  // [T, rope_dims / 2, 2]
  const float* q_norm;
  const float* k_norm;
  float* out;  // [T, heads * head_size]
};

struct Attention::Task {
  int64_t seq, part, splits, kv_head, heads;
  bool split;        // one of the sequence's splits alone
  CacheRange reads;  // none: a part of a sequence that is not split
};

void run(const AttentionOp& op, const Job& job) { job.device.attention->run(op, job); }

void Attention::run(const AttentionOp& op, const Job& job) {
  const Context& device = job.device;
  const Call call{op,
                  op.shape,
                  job.step.view,
                  *job.step.attention_tasks,
                  device.floats(op.qkv),
                  device.floats(op.rope),
                  device.vector(op.q_norm),
                  device.vector(op.k_norm),
                  device.floats(op.out)};
  switch (op.part) {
    case AttentionOp::Part::decode: return decode(call, job.worker);
    case AttentionOp::Part::prefill_write: return prefill_write(call, job.worker);
    case AttentionOp::Part::prefill: return prefill(call, job.worker);
  }
}

Attention::Attention(const KvCache& cache, const Kernels& kernels, int workers)
    : cache_(cache), kernels_(kernels), workers_(workers) {
  const KvLayout& layout = cache.layout();
  const int64_t d = layout.head_size;
  worker_bytes_ =
      align_up(sizeof(float) * static_cast<size_t>(kMaxAttentionRows * (d + 2 * softmax_stride(d) + kTileKeys + 2) +
                                                   kTileKeys * (d + padded_head(d)) + padded_head(d)),
               4096);
  worker_memory_ = Pages(worker_bytes_ * static_cast<size_t>(workers));
  // A token is in one split; sequences that share blocks may together want more, and then run unsplit. Only the part of
  // this that a model's heads need is ever touched.
  partial_slots_ = layout.num_blocks * layout.block_size / kSplitKeys + 64;
  max_group_ = 16;
  partials_ =
      Pages(static_cast<size_t>(partial_slots_ * layout.kv_heads * max_group_ * softmax_stride(d)) * sizeof(float));
  finished_ = Pages(static_cast<size_t>(partial_slots_ * layout.kv_heads) * sizeof(int32_t));
}

void Attention::reserve_tasks(int64_t seqs, size_t rings) {
  max_seqs_ = seqs;
  const int64_t words = 3 * (seqs + 1);
  plan_memory_ = Pages(rings * static_cast<size_t>(words) * sizeof(int32_t));
  tasks_.resize(rings);
  for (size_t ring = 0; ring < rings; ++ring) {
    int32_t* base = plan_memory_.as<int32_t>() + static_cast<int64_t>(ring) * words;
    tasks_[ring].decode_task = base;
    tasks_[ring].decode_slot = base + (seqs + 1);
    tasks_[ring].prefill_task = base + 2 * (seqs + 1);
  }
}

const AttentionTasks& Attention::tasks(const StepView& view) {
  const StagedStep& step = view.step();
  AttentionTasks& tasks = tasks_[step.ring];
  tasks.decode_seqs = step.decode_rows;
  tasks.prefill_seqs = step.seqs - step.decode_rows;
  if (step.seqs > max_seqs_)
    throw_error(ErrorKind::internal, "cpu: a step of {} sequences, room for {}", step.seqs, max_seqs_);
  int32_t count = 0;
  int64_t slots = 0, all_splits = 0;
  for (int32_t s = 0; s < tasks.decode_seqs; ++s) all_splits += view.positions()[s] / kSplitKeys + 1;
  // Memory is asked for ahead within a task, so sequences are cut only where there would be too few of them.
  const int64_t most = all_splits / (kDecodeTasksPerWorker * workers_);
  for (int32_t s = 0; s < tasks.decode_seqs; ++s) {
    tasks.decode_task[s] = count;
    const int64_t splits = view.positions()[s] / kSplitKeys + 1;
    const bool split = splits > std::max<int64_t>(most, 1) && slots + splits <= partial_slots_;
    tasks.decode_slot[s] = split ? static_cast<int32_t>(slots) : -1;
    if (split) slots += splits;
    count += split ? static_cast<int32_t>(splits) : 1;
  }
  tasks.decode_task[tasks.decode_seqs] = count;
  // Where the cache is read without conversion, a tile of converted keys saves nothing: small tasks are a little
  // faster.
  tasks.prefill_rows = kernels_.reads_cache_directly ? kMostPrefillRows / 4 : kMostPrefillRows;
  const int64_t enough = 4 * workers_;  // tasks, so that the last ones to end leave little idle
  while (split_prefill(view, tasks) * cache_.layout().kv_heads < enough && tasks.prefill_rows > kFewestPrefillRows)
    tasks.prefill_rows /= 2;
  return tasks;
}

// Fills in tasks.prefill_task for tasks of tasks.prefill_rows rows; returns how many there are.
int64_t Attention::split_prefill(const StepView& view, AttentionTasks& tasks) {
  int32_t count = 0;
  for (int32_t s = 0; s < tasks.prefill_seqs; ++s) {
    tasks.prefill_task[s] = count;
    const int32_t* start = view.query_start() + tasks.decode_seqs + s;
    count += (start[1] - start[0] + tasks.prefill_rows - 1) / tasks.prefill_rows;
  }
  tasks.prefill_task[tasks.prefill_seqs] = count;
  return count;
}

Attention::Scratch Attention::scratch(int worker) const {
  const int64_t d = cache_.layout().head_size;
  float* at = reinterpret_cast<float*>(worker_memory_.data() + worker_bytes_ * static_cast<size_t>(worker));
  Scratch s;
  const auto take = [&at](int64_t n) {
    float* p = at;
    at += n;
    return p;
  };
  s.weights = take(kMaxAttentionRows * kTileKeys);
  s.key_tile = take(d * kTileKeys);
  s.value_tile = take(kTileKeys * padded_head(d));
  s.q = take(kMaxAttentionRows * d);
  s.total = take(kMaxAttentionRows * softmax_stride(d));
  s.part = take(kMaxAttentionRows * softmax_stride(d));
  s.key = take(padded_head(d));
  s.first = reinterpret_cast<int32_t*>(take(kMaxAttentionRows));
  s.last = reinterpret_cast<int32_t*>(take(kMaxAttentionRows));
  return s;
}

// The group's queries of one row, ready for the scores: q [group, head_size].
void Attention::load_query(const Call& call, int64_t row, int64_t kv_head, bool rotate, float* q) const {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, first = shape.first_query(kv_head), group = shape.last_query(kv_head) - first;
  const float* in = call.qkv + (row * (shape.heads + 2 * shape.kv_heads) + first) * d;
  const float scale = shape.scale * kLog2e;
  for (int64_t g = 0; g < group; ++g, in += d, q += d) {
    if (rotate && call.q_norm != nullptr)
      kernels_.rms_norm(in, call.q_norm, nullptr, call.op.norm_eps, d, q);
    else
      std::memcpy(q, in, static_cast<size_t>(d) * sizeof(float));
    if (rotate && shape.rope_dims > 0) kernels_.rotate(q, call.rope + row * shape.rope_dims, shape.rope_dims);
    for (int64_t i = 0; i < d; ++i) q[i] *= scale;
  }
}

// Rotates one row's key and writes it and the value to the cache. key: scratch [head_size].
void Attention::write_row(const Call& call, int64_t row, int64_t kv_head, float* key) const {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size;
  const float* in = call.qkv + (row * (shape.heads + 2 * shape.kv_heads) + shape.heads + kv_head) * d;
  if (call.k_norm != nullptr)
    kernels_.rms_norm(in, call.k_norm, nullptr, call.op.norm_eps, d, key);
  else
    std::memcpy(key, in, static_cast<size_t>(d) * sizeof(float));
  if (shape.rope_dims > 0) kernels_.rotate(key, call.rope + row * shape.rope_dims, shape.rope_dims);
  const int64_t block_size = cache_.layout().block_size;
  const int64_t slot = call.view.slots()[row];
  const int64_t block = slot / block_size;
  kernels_.store_kv(key, in + shape.kv_heads * d, cache_.head(call.op.layer, false, block, kv_head),
                    cache_.head(call.op.layer, true, block, kv_head), d, block_size, slot % block_size,
                    cache_.layout().dtype);
}

AttentionArgs Attention::cache_args(const Call& call, int64_t seq, int64_t kv_head, const Scratch& scratch) const {
  AttentionArgs args;
  args.keys = cache_.head(call.op.layer, false, 0, kv_head);
  args.values = cache_.head(call.op.layer, true, 0, kv_head);
  args.block_stride = cache_.block_stride();
  args.blocks = call.view.blocks(seq);
  args.block_size = static_cast<int32_t>(cache_.layout().block_size);
  args.head_size = static_cast<int32_t>(call.shape.head_size);
  args.type = cache_.layout().dtype;
  args.reads_to = -1;
  args.heads = 1;
  args.head_stride = cache_.head_stride();
  args.rows = 0;
  args.q = scratch.q;
  args.first = scratch.first;
  args.last = scratch.last;
  args.key_tile = scratch.key_tile;
  args.value_tile = scratch.value_tile;
  args.weights = scratch.weights;
  return args;
}

// Every split that some row sees, merged in order into scratch.total.
void Attention::attend_all(const AttentionArgs& args, const Scratch& scratch) const {
  const int64_t d = args.head_size;
  int32_t first = std::numeric_limits<int32_t>::max(), last = 0;
  for (int32_t r = 0; r < args.rows; ++r) {
    first = std::min(first, args.first[r]);
    last = std::max(last, args.last[r]);
  }
  clear_states(scratch.total, args.heads * args.rows, d);
  for (int64_t split = first / kSplitKeys; split <= last / kSplitKeys; ++split) {
    kernels_.attend_split(args, split, scratch.part);
    kernels_.merge_states(scratch.total, scratch.part, args.heads * args.rows, d);
  }
}

void Attention::decode(const Call& call, Worker& worker) {
  const AttentionTasks& tasks = call.tasks;
  const AttentionShape& shape = call.shape;
  const Scratch mine = scratch(worker.index());
  const int64_t count = tasks.decode_task[tasks.decode_seqs];
  // The KV heads of a block lie one behind the other: as many as possible are read together.
  const int64_t wanted = ceil_div(kDecodeTasksPerWorker * workers_, std::max<int64_t>(count, 1));
  const bool even = shape.heads == shape.kv_heads * shape.group();
  int64_t heads = even ? ceil_div(shape.kv_heads, std::min(wanted, shape.kv_heads)) : 1;
  heads = std::clamp<int64_t>(heads, 1, std::max<int64_t>(1, kMaxAttentionRows / shape.group()));
  const int64_t parts = ceil_div(shape.kv_heads, heads);
  const auto task_at = [&](int64_t number) {
    const int64_t index = number / parts, kv_head = number % parts * heads;
    const int64_t seq = find_task(tasks.decode_task, tasks.decode_seqs, index);
    return task_of(call, seq, index - tasks.decode_task[seq], kv_head, std::min(heads, shape.kv_heads - kv_head));
  };
  // While it ends one, a worker asks for what its next one begins with: the one that comes after those of the others.
  int64_t asked = -1;
  worker.share(count * parts, [&](int64_t number) {
    const Task task = task_at(number);
    if (number != asked) ask_for(task.reads, task.heads);
    asked = number + worker.count();
    decode_task(call, task, asked < count * parts ? task_at(asked).reads : CacheRange{}, mine);
  });
}

Attention::Task Attention::task_of(const Call& call, int64_t seq, int64_t part, int64_t kv_head, int64_t heads) const {
  const AttentionTasks& tasks = call.tasks;
  Task task{seq, part, tasks.decode_task[seq + 1] - tasks.decode_task[seq], kv_head, heads, false, {}};
  task.split = tasks.decode_slot[seq] >= 0 && call.shape.group() <= max_group_;
  if (!task.split && part > 0) return task;
  const int64_t position = call.view.positions()[seq];
  int64_t from = first_visible(call.shape, position), to = position;
  if (task.split) {
    from = std::max(from, part * kSplitKeys);
    to = std::min(to, (part + 1) * kSplitKeys - 1);
  }
  if (from > to) return task;
  task.reads = {cache_.head(call.op.layer, false, 0, kv_head), cache_.head(call.op.layer, true, 0, kv_head),
                call.view.blocks(seq), from - from % kTileKeys, to};
  return task;
}

// The first tile of a range, at once: the system's memory is at its fastest when much is asked for together.
void Attention::ask_for(const CacheRange& range, int64_t heads) const {
  if (range.blocks == nullptr) return;
  const size_t bytes = static_cast<size_t>(heads) * cache_.layout().head_bytes();
  const int64_t block_size = cache_.layout().block_size, end = std::min(range.to + 1, range.from + kTileKeys);
  for (const void* all : {range.keys, range.values})
    for (int64_t position = range.from; position < end; position += block_size - position % block_size) {
      const char* block = static_cast<const char*>(all) +
                          static_cast<size_t>(range.blocks[position / block_size]) * cache_.stride_bytes();
      for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(block + i, 0, 2);
    }
}

// next: what this worker reads after it.
void Attention::decode_task(const Call& call, const Task& task, const CacheRange& next, const Scratch& scratch) {
  const AttentionTasks& tasks = call.tasks;
  const AttentionShape& shape = call.shape;
  const auto [seq, part, splits, kv_head, heads, split, reads] = task;
  const int64_t row = seq, d = shape.head_size, stride = softmax_stride(d);
  const int64_t first = shape.first_query(kv_head), group = shape.last_query(kv_head) - first;
  const int32_t position = call.view.positions()[row];
  if (!split && part > 0) return;
  for (int64_t h = 0; h < heads; ++h) {
    // The task that sees the new key writes it; the others never look at it.
    if (!split || part == splits - 1) write_row(call, row, kv_head + h, scratch.key);
    load_query(call, row, kv_head + h, true, scratch.q + h * group * d);
  }

  AttentionArgs args = cache_args(call, seq, kv_head, scratch);
  args.heads = static_cast<int32_t>(heads);
  args.rows = static_cast<int32_t>(group);
  args.reads_to = reads.to;
  args.next = next;
  for (int64_t g = 0; g < group; ++g) {
    scratch.first[g] = static_cast<int32_t>(first_visible(shape, position));
    scratch.last[g] = position;
  }
  const int64_t rows = heads * group;
  if (split) {
    const int64_t head_states = shape.group() * stride, slot_states = shape.kv_heads * head_states;
    float* states = partials_.as<float>() + tasks.decode_slot[seq] * slot_states + kv_head * head_states;
    kernels_.attend_split(args, part, states + part * slot_states);
    std::atomic_ref<int32_t> done(finished_.as<int32_t>()[tasks.decode_slot[seq] * shape.kv_heads + kv_head]);
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < splits) return;
    done.store(0, std::memory_order_relaxed);
    // The last to finish merges, in the order of the splits.
    clear_states(scratch.total, rows, d);
    for (int64_t i = 0; i < splits; ++i) kernels_.merge_states(scratch.total, states + i * slot_states, rows, d);
  } else {
    attend_all(args, scratch);
  }
  float* out = call.out + (row * shape.heads + first) * d;
  for (int64_t r = 0; r < rows; ++r) kernels_.finish_state(scratch.total + r * stride, d, out + r * d);
}

void Attention::prefill_write(const Call& call, Worker& worker) {
  const AttentionShape& shape = call.shape;
  const StagedStep& step = call.view.step();
  const int64_t d = shape.head_size, width = (shape.heads + 2 * shape.kv_heads) * d;
  const int64_t rows = step.tokens - step.decode_rows;
  constexpr int64_t kRows = 8;
  float* key = scratch(worker.index()).key;
  worker.share((rows + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min<int64_t>(step.tokens, step.decode_rows + (task + 1) * kRows);
    for (int64_t row = step.decode_rows + task * kRows; row < end; ++row) {
      float* q = call.qkv + row * width;
      for (int64_t h = 0; h < shape.heads; ++h, q += d) {
        if (call.q_norm != nullptr) kernels_.rms_norm(q, call.q_norm, nullptr, call.op.norm_eps, d, q);
        if (shape.rope_dims > 0) kernels_.rotate(q, call.rope + row * shape.rope_dims, shape.rope_dims);
      }
      for (int64_t h = 0; h < shape.kv_heads; ++h) write_row(call, row, h, key);
    }
  });
}

void Attention::prefill(const Call& call, Worker& worker) {
  const AttentionTasks& tasks = call.tasks;
  const Scratch mine = scratch(worker.index());
  const int64_t kv_heads = call.shape.kv_heads;
  const int64_t tiles = tasks.prefill_task[tasks.prefill_seqs];
  worker.share(tiles * kv_heads, [&](int64_t task) {
    const int64_t index = tiles - 1 - task / kv_heads;  // the end of a sequence sees most keys: long tasks first
    const int64_t seq = find_task(tasks.prefill_task, tasks.prefill_seqs, index);
    prefill_task(call, tasks.decode_seqs + seq, index - tasks.prefill_task[seq], task % kv_heads, mine);
  });
}

void Attention::prefill_task(const Call& call, int64_t seq, int64_t tile, int64_t kv_head, const Scratch& scratch) {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, stride = softmax_stride(d);
  const int64_t first = shape.first_query(kv_head), group = shape.last_query(kv_head) - first;
  const int64_t begin = call.view.query_start()[seq] + tile * call.tasks.prefill_rows;
  const int64_t end = std::min<int64_t>(begin + call.tasks.prefill_rows, call.view.query_start()[seq + 1]);
  const int64_t at_once = std::max<int64_t>(1, kMaxAttentionRows / group);
  AttentionArgs args = cache_args(call, seq, kv_head, scratch);
  for (int64_t from = begin; from < end; from += at_once) {
    const int64_t to = std::min(end, from + at_once);
    args.rows = static_cast<int32_t>((to - from) * group);
    for (int64_t row = from; row < to; ++row) {
      load_query(call, row, kv_head, false, scratch.q + (row - from) * group * d);
      const int32_t position = call.view.positions()[row];
      for (int64_t g = 0; g < group; ++g) {
        scratch.first[(row - from) * group + g] = static_cast<int32_t>(first_visible(shape, position));
        scratch.last[(row - from) * group + g] = position;
      }
    }
    attend_all(args, scratch);
    for (int64_t row = from; row < to; ++row)
      for (int64_t g = 0; g < group; ++g)
        kernels_.finish_state(scratch.total + ((row - from) * group + g) * stride, d,
                              call.out + (row * shape.heads + first + g) * d);
  }
}

}  // namespace ingot::cpu
