#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

// Tiny checkpoints of models and of the heads that guess for them, made up here, and what they compute, once more in
// double precision and in the plainest way.
namespace ingot::testing {

struct MadeTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // of bf16, rounded
};

struct MadeModel {
  int64_t layers = 1, hidden = 64, heads = 2, kv_heads = 1, head_size = 32, ffn = 96, vocab = 331;
  double theta = 10000, eps = 1e-5;
  std::string extra;  // more of config.json: `, "key": value`
  std::string architecture = "LlamaForCausalLM";
  std::map<std::string, MadeTensor> tensors;
  std::vector<int64_t> d2t;  // of a head; empty: there is none
  bool norm_before_residual = false;

  void write(const std::filesystem::path& folder) const;  // config.json and model.safetensors
  const MadeTensor& at(const std::string& name) const { return tensors.at(name); }
};

// Random weights, with gains as in scripts/make_tiny_models.py.
MadeModel random_target(uint32_t seed);
// `guessed`: tokens that it guesses among. It reads what enters layers 0, 2 and 3 of a random target.
MadeModel random_head(uint32_t seed, int64_t guessed, bool norm_before_residual = false);

// A model of four layers that says after a token nearly always the one that follows_after() it, ...
int32_t follows_after(int32_t token, int64_t vocab);
MadeModel successor_target(int64_t vocab);
// ... and a head that knows, but for every `unknown`th token, which it cannot guess (0: it knows all).
MadeModel successor_head(int64_t vocab, int64_t unknown);
// One that looks at the model's states alone, and so knows one token at a time.
MadeModel states_head(int64_t vocab);

// MiMo, a model with an MTP layer that guesses for it: random, or a successor_target() whose layer knows all.
MadeModel random_mimo(uint32_t seed);
MadeModel successor_mimo(int64_t vocab);

using DoubleRows = std::vector<std::vector<double>>;
DoubleRows rows_of(const MadeTensor& table, const std::vector<int32_t>& ids);
// The residual stream of a model as it enters each of its layers: [layers][T][hidden].
std::vector<DoubleRows> reference_streams(const MadeModel& model, const std::vector<int32_t>& ids);
// A head's rows: what its own product makes of states of the model; and what rows of so many states, with the
// embedding of their tokens, give.
DoubleRows reference_read(const MadeModel& head, const DoubleRows& states);
struct HeadRows {
  DoubleRows own;     // [T][hidden]: states for the next guess
  DoubleRows logits;  // [T][guessed]
};
// What leaves the last layer of a model, normed.
DoubleRows reference_final(const MadeModel& model, const std::vector<int32_t>& ids);
// The same of the MTP layer of a model.
HeadRows reference_mtp(const MadeModel& model, const DoubleRows& embedded, const DoubleRows& states);
HeadRows reference_head(const MadeModel& head, const DoubleRows& embedded, const DoubleRows& states);

}  // namespace ingot::testing
