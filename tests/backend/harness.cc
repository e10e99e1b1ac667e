#include "harness.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>

#include "backend/cpu/device.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/select.h"
#include "backend/metal/device.h"
#include "core/half.h"
#include "cuda_device.h"
#include "metal_mode.h"
#include "soak.h"

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

StagedStep TestStep::stage(Backend& backend) const {
  const std::span<std::byte> buffer = backend.stage(ring);
  StagedStep step;
  step.ring = ring;
  step.tokens = static_cast<int32_t>(positions.size());
  step.seqs = static_cast<int32_t>(seq_lens.size());
  step.decode_rows = decode_rows;
  step.samples = static_cast<int32_t>(sample_rows.size());
  for (size_t s = 0; s < blocks.size(); ++s) {
    step.max_blocks = std::max(step.max_blocks, static_cast<int32_t>(blocks[s].size()));
    step.max_seq_len = std::max(step.max_seq_len, seq_lens[s]);
    step.max_query_len = std::max(step.max_query_len, query_start[s + 1] - query_start[s]);
  }
  size_t at = 0;
  const auto place = [&](const void* data, size_t bytes) {
    at = (at + 63) / 64 * 64;
    const size_t offset = at;
    if (offset + bytes > buffer.size()) throw std::runtime_error("the stage is too small for this test");
    if (bytes > 0) std::memcpy(buffer.data() + offset, data, bytes);
    at += bytes;
    return offset;
  };
  const auto place_all = [&](const auto& v) { return place(v.data(), v.size() * sizeof(v[0])); };
  step.token_ids = place_all(token_ids);
  step.positions = place_all(positions);
  step.slots = place_all(slots);
  step.query_start = place_all(query_start);
  step.seq_lens = place_all(seq_lens);
  std::vector<int32_t> table;
  for (const auto& row : blocks) {
    table.insert(table.end(), row.begin(), row.end());
    table.resize(table.size() + static_cast<size_t>(step.max_blocks) - row.size(), -1);
  }
  step.block_table = place_all(table);
  std::vector<int32_t> words;
  for (const BlockCopy& copy : copies) words.insert(words.end(), {copy.from, copy.to});
  step.copies = static_cast<int32_t>(copies.size());
  step.block_copies = place_all(words);
  step.zeros = static_cast<int32_t>(zeros.size());
  step.block_zeros = place_all(zeros);
  step.sample_rows = place_all(sample_rows);

  std::vector<int32_t> pool;
  const auto append = [&pool](const auto& ids) {
    const int32_t offset = static_cast<int32_t>(pool.size());
    pool.insert(pool.end(), ids.begin(), ids.end());
    return offset;
  };
  std::vector<StagedSampling> rows;
  int32_t logits_row = 0;
  for (size_t r = 0; r < sampling.size(); ++r) {
    const SamplingParams& p = sampling[r];
    StagedSampling s{};
    s.temperature = p.temperature;
    s.top_p = p.top_p;
    s.min_p = p.min_p;
    s.presence_penalty = p.presence_penalty;
    s.frequency_penalty = p.frequency_penalty;
    s.repetition_penalty = p.repetition_penalty;
    s.top_k = p.top_k;
    s.slot = sampler_slot[r];
    s.seed = p.seed;
    s.position = sample_positions[r];
    s.kind = static_cast<int32_t>(output[r].kind);
    s.top = output[r].top;
    s.target = output[r].target;
    s.min_tokens = p.min_tokens;
    s.stop_count = static_cast<int32_t>(p.stop_token_ids.size());
    s.stop_offset = append(p.stop_token_ids);
    s.bias_count = static_cast<int32_t>(p.logit_bias.size());
    s.bias_offset = static_cast<int32_t>(pool.size());
    for (const auto& [id, bias] : p.logit_bias) pool.insert(pool.end(), {id, std::bit_cast<int32_t>(bias)});
    s.allowed_count = static_cast<int32_t>(p.allowed_token_ids.size());
    s.allowed_offset = append(p.allowed_token_ids);
    s.bad_count = static_cast<int32_t>(p.bad_words.size());
    s.bad_offset = static_cast<int32_t>(pool.size());
    for (const auto& word : p.bad_words) {
      pool.push_back(static_cast<int32_t>(word.size()));
      append(word);
    }
    s.mask_offset = r < masks.size() && !masks[r].empty() ? append(masks[r]) : -1;
    s.logits_row = output[r].kind == RowOutput::Kind::full_logits ? logits_row++ : -1;
    rows.push_back(s);
  }
  step.sampling = place_all(rows);
  std::vector<int32_t> reset_words;
  for (const SamplerReset& reset : resets) {
    const int32_t offset = append(reset.prompt_ids);
    append(reset.output_ids);
    reset_words.insert(reset_words.end(), {reset.slot, offset, static_cast<int32_t>(reset.prompt_ids.size()),
                                           static_cast<int32_t>(reset.output_ids.size())});
  }
  step.resets = static_cast<int32_t>(resets.size());
  step.reset_words = place_all(reset_words);
  step.pool = place_all(pool);
  step.bytes = at;
  return step;
}

OutputLayout make_output_layout(int32_t rows, int32_t top, int32_t logits_rows, int64_t vocab) {
  OutputLayout layout;
  layout.max_rows = rows;
  layout.max_top = top;
  layout.max_logits_rows = logits_rows;
  layout.vocab = vocab;
  const auto take = [&layout](int64_t words) {
    const size_t offset = layout.bytes;
    layout.bytes += (static_cast<size_t>(words) * 4 + 63) / 64 * 64;
    return offset;
  };
  layout.tokens = take(rows);
  layout.logprobs = take(rows);
  layout.ranks = take(rows);
  layout.top_ids = take(int64_t{rows} * top);
  layout.top_values = take(int64_t{rows} * top);
  layout.logits = take(logits_rows * vocab);
  return layout;
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
