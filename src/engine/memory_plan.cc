#include "engine/memory_plan.h"

#include <algorithm>
#include <limits>

#include "collective/group.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "core/memory.h"
#include "engine/heads.h"
#include "step/stage.h"

namespace ingot {
namespace {

constexpr int32_t kMaxTop = 32;          // alternatives a row may ask for
constexpr int64_t kLogitsShare = 4;      // logits take at most this part of the scratch pool
constexpr int32_t kMostStateRows = 512;  // of a step, that give their hidden states
constexpr uint64_t kMiB = 1ull << 20;
constexpr uint64_t kMostUnaskedHostBytes = 1ull << 30;

KvType parse_kv_dtype(const std::string& name) {
  const std::optional<KvType> type = parse_kv_type(name);
  if (!type) throw_error(ErrorKind::bad_call, "--kv-dtype {}: must be {}", name, kKvTypeNames);
  return *type;
}

Pooling choose_pooling(const ModelConfig& config, const EngineOptions& options) {
  using Kind = Pooling::Kind;
  Pooling pooling = config.pooling;
  if (options.pooling == "last")
    pooling.kind = Kind::last;
  else if (options.pooling == "mean")
    pooling.kind = Kind::mean;
  else if (options.pooling == "cls")
    pooling.kind = Kind::first;
  else if (options.pooling != "auto")
    throw_error(ErrorKind::bad_call, "--pooling {}: must be auto, last, mean or cls", options.pooling);
  else if (options.embeddings && !pooling)
    pooling.kind = Kind::last;
  return pooling;
}

// How many blocks of host memory there are room for.
int64_t host_blocks(const EngineOptions& options, const DeviceInfo& device, uint64_t block_bytes) {
  if (options.host_cache_bytes < -1)
    throw_error(ErrorKind::bad_call, "{} bytes of host memory for blocks: cannot be negative",
                options.host_cache_bytes);
  if (options.host_cache_bytes == 0) return 0;
  const uint64_t free = device.own_memory ? available_memory_bytes() : device.memory_bytes;
  const uint64_t bytes = options.host_cache_bytes > 0 ? static_cast<uint64_t>(options.host_cache_bytes)
                         : free > 0                   ? std::min(kMostUnaskedHostBytes, free / 8)
                                                      : kMostUnaskedHostBytes;
  const auto blocks = static_cast<int64_t>(bytes / block_bytes);
  if (blocks < 1)
    throw_error(ErrorKind::bad_call, "--prefix-ram {}: a block of this model's KV cache takes {}", format_bytes(bytes),
                format_bytes(block_bytes));
  return std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max());
}

}  // namespace

std::string MemoryPlan::describe() const {
  return fmt::format("weights {} + KV cache {} + scratch {} + work {} + sampler {} + input/output {}{} = {}",
                     format_bytes(weight_bytes), format_bytes(kv_bytes), format_bytes(scratch_bytes),
                     format_bytes(work_bytes), format_bytes(sampler_bytes), format_bytes(io_bytes),
                     host_cache_bytes > 0 ? fmt::format(" + host blocks {}", format_bytes(host_cache_bytes)) : "",
                     format_bytes(total_bytes()));
}

MemoryPlan plan_memory(const ModelConfig& config, const ModelShare& share, const EngineOptions& options,
                       const Settings& settings, const Backend& device, uint64_t weight_bytes, uint64_t available) {
  MemoryPlan plan;
  plan.weight_bytes = weight_bytes;
  plan.available_bytes = available;
  EngineLimits& limits = plan.limits;
  limits.vocab = config.vocab;
  if (share.stage.count > 1) {  // one for each stage, and one that is on its way
    limits.steps_in_flight = share.stage.count + 1;
    limits.chains_tokens = false;
  }
  limits.max_top = std::min<int64_t>(kMaxTop, config.vocab);
  limits.block_size = options.block_size;
  if (options.block_size < 1 || options.block_size > 1024)
    throw_error(ErrorKind::bad_call, "block size {}: must be from 1 to 1024", options.block_size);
  if (options.max_seqs < 1 || options.max_seqs > 4096)
    throw_error(ErrorKind::bad_call, "{} sequences: must be from 1 to 4096", options.max_seqs);
  if (options.max_model_len < 0 || options.max_model_len > config.max_position)
    throw_error(ErrorKind::bad_call, "--max-model-len {}: the model was made for at most {} positions",
                options.max_model_len, config.max_position);
  if (config.head) {
    limits.reads_width = config.head.reads;
    limits.state_width = config.hidden;
    limits.token_ids = config.head.vocab;
    limits.chains_tokens = false;  // what it samples are tokens of its own
  } else if (options.gives_states) {
    limits.state_width = static_cast<int64_t>(state_layers(options, config.layers).size()) * config.hidden;
  }
  const bool final_states = gives_final_states(config, options);
  limits.max_seqs = options.max_seqs;
  limits.sampler_slots = options.max_seqs;
  limits.pooling = choose_pooling(config, options);
  const int64_t pool_slots = limits.pooling ? limits.sampler_slots : 0;
  limits.max_model_len = options.max_model_len > 0 ? options.max_model_len : config.max_position;

  // Scratch: the pool's size bounds how many tokens a step may have.
  const uint64_t pool = static_cast<uint64_t>(settings.scratch_pool_mb) * kMiB;
  const int64_t row_budget = static_cast<int64_t>(pool / kLogitsShare) / (config.vocab * 4);
  const bool tokens_given = options.max_step_tokens > 0 || settings.max_batch_size > 0;
  int64_t tokens = options.max_step_tokens > 0   ? options.max_step_tokens
                   : settings.max_batch_size > 0 ? settings.max_batch_size
                                                 : device.info().step_tokens;
  tokens = std::max<int64_t>(tokens, 1);
  for (;;) {
    limits.max_step_tokens = static_cast<int32_t>(tokens);
    limits.max_sample_rows = static_cast<int32_t>(std::min(tokens, std::max<int64_t>(row_budget, limits.max_seqs)));
    plan.scratch = DecoderScratch::of(config, share, tokens, limits.max_sample_rows, device.info().activation,
                                      pool_slots, final_states);
    if (plan.scratch.bytes <= pool) break;
    if (tokens_given || tokens == 1)
      throw_error(
          ErrorKind::bad_call,
          "a step of {} tokens needs {} of scratch memory, over VLLM_METAL_SCRATCH_POOL_MB={}: raise it, or lower "
          "--max-step-tokens",
          tokens, format_bytes(plan.scratch.bytes), settings.scratch_pool_mb);
    tokens /= 2;
  }
  if (limits.state_width > 0) limits.max_state_rows = std::min(limits.max_step_tokens, kMostStateRows);
  const int64_t widest = std::max({config.head ? std::max(config.head.reads, 2 * config.hidden) : config.hidden,
                                   share.ffn.size(), share.heads.size() * config.head_size});
  plan.scratch_bytes = plan.scratch.bytes;
  plan.work_bytes = device.work_bytes(tokens, widest);
  if (config.experts > 0) {  // the rows of experts are gathered before they are multiplied
    const int64_t pairs = tokens * config.experts_per_token;
    plan.work_bytes =
        std::max<uint64_t>(plan.work_bytes, device.work_bytes(pairs, std::max(config.hidden, config.expert_ffn)) +
                                                static_cast<uint64_t>(pairs * config.hidden) * sizeof(float));
  }
  if (!share.alone() || share.stage.count > 1) {  // what goes to other ranks, and what comes from them
    const bool gathers = share.samples();
    const int64_t logits = share.alone() || !share.stage.last()
                               ? 0
                               : limits.max_sample_rows * (gathers ? config.vocab : share.vocab.size());
    const auto sum = sizeof(float) * static_cast<uint64_t>(tokens * config.hidden);
    const auto most = std::max<uint64_t>(sum, sizeof(float) * static_cast<uint64_t>(logits));
    if (!share.alone()) plan.work_bytes = std::max<uint64_t>(plan.work_bytes, gathers ? most : sum);
    plan.work_bytes += device.mailbox_bytes(gathers ? sum : most, gathers ? most : sum);
  }
  plan.work_bytes += device.slice_bytes(tokens, config.hidden);
  limits.max_seqs = std::min(limits.max_seqs, limits.max_step_tokens);
  limits.max_logits_rows = std::min(options.max_logits_rows, limits.max_sample_rows);

  // The KV cache takes what is asked for, or what the sequences could use, or what is left.
  plan.kv = {.layers = share.stage.layers.size(),
             .num_blocks = 1,
             .kv_heads = share.kv_heads.size(),
             .block_size = options.block_size,
             .head_size = config.head_size,
             .dtype = parse_kv_dtype(options.kv_dtype)};
  const uint64_t block_bytes = plan.kv.total_bytes();
  plan.sampler = {.slots = limits.sampler_slots, .max_tokens = limits.max_model_len + 1, .vocab = config.vocab};
  plan.sampler_bytes = device.sampler_bytes(plan.sampler);
  const int64_t seq_blocks = ceil_div(limits.max_model_len, options.block_size);
  limits.num_blocks = options.kv_blocks > 0 ? options.kv_blocks : seq_blocks * limits.max_seqs;
  // Half of it holds a bias for every token of the vocabulary; the other half the longest history twice.
  limits.max_list_words = std::max<int64_t>(1 << 18, 4 * limits.max_model_len) + 4 * limits.vocab;
  plan.output =
      OutputLayout::of(limits.max_sample_rows, limits.max_top, limits.max_logits_rows, limits.vocab,
                       limits.pooling ? limits.max_seqs : 0, config.hidden, limits.max_state_rows, limits.state_width);
  plan.stage_bytes = stage_bytes(limits);
  plan.io_bytes = static_cast<uint64_t>(limits.steps_in_flight) * plan.stage_bytes;
  // Outputs are where rows are sampled; where the first stage is elsewhere, once more on rank 0.
  if (share.samples()) plan.io_bytes += static_cast<uint64_t>(limits.steps_in_flight) * plan.output.bytes;
  if (share.stage.count > 1 && share.stage.first() && share.rank == 0) plan.io_bytes += plan.output.bytes;

  plan.limits.host_blocks = host_blocks(options, device.info(), block_bytes);
  plan.limits.moves_beside = device.info().moves_beside;
  if (!device.info().own_memory) plan.host_cache_bytes = static_cast<uint64_t>(limits.host_blocks) * block_bytes;

  if (plan.available_bytes > 0) {
    const uint64_t fixed = plan.total_bytes() + MemoryPlan::kReserve;
    const uint64_t left = plan.available_bytes > fixed ? plan.available_bytes - fixed : 0;
    const int64_t fit = static_cast<int64_t>(left / block_bytes);
    // Unasked, the cache takes no more than half of what is left, unless one sequence needs it: a prefix cache fills
    // all it gets, and the rest of the system lives on the other half.
    if (options.kv_blocks == 0)
      limits.num_blocks = std::min(limits.num_blocks, std::max(fit / 2, std::min(fit, seq_blocks)));
    // A model length nobody asked for gives way before the load is refused.
    if (options.max_model_len == 0 && limits.num_blocks < seq_blocks)
      limits.max_model_len = std::max<int64_t>(1, limits.num_blocks) * options.block_size;
    if (limits.num_blocks > fit || fit < 1) {
      const int64_t blocks = std::max<int64_t>(limits.num_blocks, 1);
      const uint64_t needed = fixed + block_bytes * static_cast<uint64_t>(blocks);
      throw_error(ErrorKind::out_of_memory,
                  "the model does not fit, {} are lacking: {} needed with {} KV blocks ({} each), {} available; lower "
                  "--kv-blocks or --max-model-len, or use a smaller or more quantized model",
                  format_bytes(needed - plan.available_bytes), format_bytes(needed), blocks, format_bytes(block_bytes),
                  format_bytes(plan.available_bytes));
    }
  }
  if (options.max_model_len > 0 && limits.num_blocks < ceil_div(limits.max_model_len, options.block_size))
    throw_error(ErrorKind::out_of_memory, "{} KV blocks of {} hold {} positions, fewer than the {} of --max-model-len",
                limits.num_blocks, options.block_size, limits.num_blocks * options.block_size, limits.max_model_len);
  limits.max_model_len = std::min(limits.max_model_len, limits.num_blocks * options.block_size);
  plan.kv.num_blocks = limits.num_blocks;
  plan.kv_bytes = plan.kv.total_bytes();
  return plan;
}

}  // namespace ingot
