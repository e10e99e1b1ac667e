#include "harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/cpu/device.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/select.h"
#include "backend/metal/device.h"
#include "core/half.h"
#include "cuda_device.h"
#include "ingot/step_builder.h"
#include "metal_mode.h"
#include "soak.h"
#include "step/stage.h"

namespace ingot::test {

namespace {
DeviceCase cpu_case(const std::string& isa) {
  return {"cpu_" + isa, [isa] { return make_cpu_backend({.threads = 2, .isa = isa, .drop_pages = {}}); }, {}};
}

// The name of the running test, of all its devices.
std::string case_name() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return info == nullptr ? "" : std::string(info->test_suite_name()) + "." + info->name();
}

// The software device with its checks.
DeviceCase metal_case(DType activation) {
  return {"metal_" + std::string(dtype_name(activation)),
          [activation] {
            metal_in_watched_mode(case_name());
            return make_metal_backend({.activation = activation});
          },
          {}};
}
DeviceCase shuffled_metal_case(unsigned seed) {
  return {"metal_f16_seed_" + std::to_string(seed),
          [seed] {
            metal_in_strict_mode(seed);
            return make_metal_backend({.activation = DType::f16});
          },
          {}};
}

DeviceCase cuda_case(DType activation) {
  return {"cuda_" + std::string(dtype_name(activation)),
          [activation] { return make_metal_backend({.cuda = true, .activation = activation}); }, cuda_missing};
}
}  // namespace

const std::vector<DeviceCase>& devices() {
  static const std::vector<DeviceCase> list = [] {
    std::vector<DeviceCase> cases;
    for (cpu::Isa isa : cpu::available_isas()) cases.push_back(cpu_case(std::string(cpu::isa_name(isa))));
    for (DType activation : {DType::f16, DType::bf16}) cases.push_back(metal_case(activation));
    for (DType activation : {DType::f16, DType::bf16}) cases.push_back(cuda_case(activation));
    for (unsigned seed = 1; soak() && seed <= 4; ++seed) cases.push_back(shuffled_metal_case(seed));
    return cases;
  }();
  return list;
}

const std::vector<DeviceCase>& attention_devices() {
  static const std::vector<DeviceCase> list = [] {
    std::vector<DeviceCase> cases;
    for (const std::string& isa : attention_isas()) cases.push_back(cpu_case(isa));
    cases.push_back(metal_case(DType::f16));
    cases.push_back(cuda_case(DType::f16));
    for (unsigned seed = 1; soak() && seed <= 4; ++seed) cases.push_back(shuffled_metal_case(seed));
    return cases;
  }();
  return list;
}

std::vector<std::string> attention_isas() {
  std::vector<std::string> names;
  std::set<const cpu::Kernels*> seen;
  for (cpu::Isa isa : cpu::available_isas())
    if (seen.insert(&cpu::select_kernels(isa)).second) names.emplace_back(cpu::isa_name(isa));
  return names;
}

void TestStep::add_rows(const std::vector<int32_t>& sequence_blocks, int64_t block_size, int32_t first, int32_t count,
                        bool decode) {
  slots_per_block = block_size;
  for (int32_t p = first; p < first + count; ++p) {
    token_ids.push_back(0);
    positions.push_back(p);
    slots.push_back(sequence_blocks[static_cast<size_t>(p / block_size)] * block_size + p % block_size);
  }
  if (decode) ++decode_rows;
  query_start.push_back(static_cast<int32_t>(positions.size()));
  seq_lens.push_back(first + count);
  blocks.push_back(sequence_blocks);
}

void TestStep::add_sample(int32_t row, const SamplingParams& params, RowOutput wanted, int32_t slot) {
  sample_rows.push_back(row);
  sampling.push_back(params);
  output.push_back(wanted);
  sampler_slot.push_back(slot);
  sample_positions.push_back(static_cast<size_t>(row) < positions.size() ? positions[static_cast<size_t>(row)] + 1 : 1);
}

void run_step(Backend& backend, const TestStep& step, const std::function<void()>& operations) {
  const StagedStep staged = step.stage(backend);
  backend.rehearse(staged, operations);
  backend.begin(staged);
  operations();
  backend.submit();
  backend.wait(step.ring);
}

Step TestStep::to_step() const {
  Step step;
  step.token_ids = token_ids;
  step.positions = positions;
  step.slot_mapping = slots;
  step.query_start_loc = query_start;
  step.seq_lens = seq_lens;
  set_totals(step, decode_rows);
  for (const auto& row : blocks) step.max_blocks = std::max(step.max_blocks, static_cast<int32_t>(row.size()));
  for (const auto& row : blocks) {
    step.block_table.insert(step.block_table.end(), row.begin(), row.end());
    step.block_table.resize(step.block_table.size() + static_cast<size_t>(step.max_blocks) - row.size(), -1);
  }
  step.block_saves = saves;
  step.block_loads = loads;
  step.block_copies = copies;
  step.blocks_to_zero = zeros;
  step.sampler_resets = resets;
  step.sample_rows = sample_rows;
  step.sampling = sampling;
  step.sampler_slot = sampler_slot;
  step.output = output;
  // Logits may be sampled without rows of a model: then a row is a position and no more.
  for (size_t r = 0; r < sample_rows.size(); ++r) {
    const size_t row = static_cast<size_t>(sample_rows[r]);
    if (step.positions.size() <= row) step.positions.resize(row + 1);
    step.positions[row] = sample_positions[r] - 1;
  }
  const size_t words = masks.empty() ? 0 : std::ranges::max(masks, {}, &std::vector<uint32_t>::size).size();
  for (size_t r = 0; words > 0 && r < sample_rows.size(); ++r) {
    const bool masked = r < masks.size() && !masks[r].empty();
    step.grammar_mask.insert(step.grammar_mask.end(), words, ~0u);
    if (masked) std::ranges::copy(masks[r], step.grammar_mask.end() - static_cast<int64_t>(words));
  }
  return step;
}

StagedStep TestStep::stage(Backend& backend) const {
  const Step step = to_step();
  const size_t mask_words = sample_rows.empty() ? 0 : step.grammar_mask.size() / sample_rows.size();
  return stage_step(step, static_cast<int64_t>(32 * mask_words), slots_per_block, ring, backend.stage(ring));
}

std::vector<float> random_floats(std::mt19937& random, size_t n, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

void put(Backend& backend, Region region, std::span<const float> values, bool f32) {
  if (f32 || backend.info().activation == DType::f32) return backend.write_scratch(region, std::as_bytes(values));
  std::vector<uint16_t> words;
  for (float x : values) words.push_back(backend.info().activation == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x));
  backend.write_scratch(region, std::as_bytes(std::span(words)));
}

std::vector<float> get(Backend& backend, Region region, size_t n, bool f32) {
  std::vector<float> values(n);
  if (f32 || backend.info().activation == DType::f32) {
    backend.read_scratch(region, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<uint16_t> words(n);
  backend.read_scratch(region, std::as_writable_bytes(std::span(words)));
  for (size_t i = 0; i < n; ++i)
    values[i] = backend.info().activation == DType::f16 ? f16_to_f32(words[i]) : bf16_to_f32(words[i]);
  return values;
}

}  // namespace ingot::test
