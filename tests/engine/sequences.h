#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ingot/engine.h"
#include "soak.h"

// Drives an engine through whole sequences, the way tests want them cut.
namespace ingot::testing {

using test::kSanitized;
using test::soak;
using test::unless_sanitized;
using test::with_soak;

struct Sequence {
  std::vector<int32_t> ids;
  std::vector<int32_t> blocks;
  int64_t chunk = 1 << 20;  // most rows a step
  bool wanted = true;       // collect its logits
  int64_t start = 0;        // positions before this one are in the cache already
};

using Logits = std::vector<std::vector<float>>;  // [rows][vocab]

// Runs all sequences side by side, each in its own chunks, until every one is done; returns the logits of the wanted
// ones.
std::vector<Logits> run_sequences(Engine& engine, const std::vector<Sequence>& sequences);

// Logits of one sequence alone, in one prefill as far as the limits allow.
Logits run_alone(Engine& engine, const std::vector<int32_t>& ids);
// The same as a server would run it: a prompt, in chunks as large as the limits allow, and its last `decoded` tokens
// one a step.
Logits run_as_served(Engine& engine, const std::vector<int32_t>& ids, size_t decoded = 2);

// One row a step, in turn a row of a prompt and a decode row: both ways of a product with the fewest kernels there are.
Logits run_row_by_row(Engine& engine, const std::vector<int32_t>& ids);

std::vector<int32_t> random_ids(size_t count, int64_t vocab, uint32_t seed);
// `count` sets of blocks for `length` positions each, disjoint, in an order shuffled by `seed` (0: ascending).
std::vector<std::vector<int32_t>> assign_blocks(const EngineLimits& limits, size_t count, int64_t length,
                                                uint32_t seed);

// Path of a checkpoint under tests/fixtures/models, and what transformers said about it.
std::string fixture_model(const std::string& name);
std::string fixture_config(const std::string& name);  // a folder with a real model's config.json alone
struct Reference {
  std::vector<int32_t> ids;
  Logits logits;
};
Reference fixture_reference(const std::string& name);
// Of logits from the reference: 16-bit weights are computed exactly but for the rounding of activations; the CPU's
// block formats also round activations to 8 bits, which costs a 96-wide model more than a real one.
inline constexpr double kTolerance = 0.05;
inline constexpr double kQuantizedTolerance = 0.15;
// The parameter of a test as part of its name.
std::string test_name(const ::testing::TestParamInfo<std::string>& info);
// For one short sequence, all of whose logits are wanted. Of a Metal device each size of a step is a kernel to compile,
// so there, but for the long form, steps have one row.
EngineOptions fixture_options(const std::string& model_path, const std::string& device);
// Loads `options` and compares: the largest difference of a logit from the reference of a fixture, run as served; where
// a step has room for one row, row by row, and only the first of them.
double reference_difference(const EngineOptions& options, const std::string& name);

// Largest absolute difference.
double max_difference(const Logits& a, const Logits& b);

// The default model (INGOT_DEFAULT_MODEL), empty when it is not there.
std::string default_model();

}  // namespace ingot::testing
