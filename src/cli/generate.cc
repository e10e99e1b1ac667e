#include "cli/generate.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/error.h"
#include "engine/step_builder.h"

namespace ingot::cli {

Generation generate(Engine& engine, std::span<const int32_t> prompt, const SamplingParams& params, int64_t max_tokens,
                    std::span<const int32_t> stop_ids, const std::function<void(int32_t)>& on_token) {
  using Clock = std::chrono::steady_clock;
  const EngineLimits& limits = engine.limits();
  const int64_t length = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) throw_error(ErrorKind::bad_call, "the prompt is empty: there is nothing to continue");
  if (length >= limits.max_model_len)
    throw_error(ErrorKind::bad_call, "the prompt has {} tokens, the context holds {}", length, limits.max_model_len);
  max_tokens = std::min(max_tokens, limits.max_model_len - length);

  std::vector<int32_t> blocks(static_cast<size_t>((length + max_tokens + limits.block_size - 1) / limits.block_size));
  std::iota(blocks.begin(), blocks.end(), 0);
  StepBuilder builder(limits.block_size);
  Generation result;
  result.finish_reason = "length";
  if (max_tokens == 0) return result;

  auto start = Clock::now();
  const auto lap = [&start] {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start).count();
    start = now;
    return seconds;
  };
  int32_t token = -1;
  for (int64_t done = 0; done < length;) {
    const int64_t rows = std::min<int64_t>(limits.max_step_tokens, length - done);
    builder.clear();
    const int32_t first =
        builder.add(prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)), done, blocks);
    done += rows;
    if (done == length) {
      builder.reset_sampler({.slot = 0, .prompt_ids = {prompt.begin(), prompt.end()}, .output_ids = {}});
      builder.sample(first + static_cast<int32_t>(rows) - 1, params, 0);
    }
    const StepResult step = engine.run(builder.finish());
    if (done == length) token = step.rows[0].token;
  }
  result.prefill_seconds = lap();
  for (;;) {
    result.token_ids.push_back(token);
    if (std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) {
      result.finish_reason = "stop";
      break;
    }
    on_token(token);
    const int64_t generated = static_cast<int64_t>(result.token_ids.size());
    if (generated == max_tokens) break;
    builder.clear();
    builder.add({&token, 1}, length + generated - 1, blocks);
    builder.sample(0, params, 0);
    token = engine.run(builder.finish()).rows[0].token;
  }
  result.decode_seconds = lap();
  return result;
}

}  // namespace ingot::cli
