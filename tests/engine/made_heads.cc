#include "engine/made_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace ingot::testing {
namespace {

uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float rounded(double value) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits(static_cast<float>(value))) << 16);
}

// Fills a model's tensors.
class Maker {
 public:
  Maker(MadeModel& model, uint32_t seed) : model_(model), random_(seed) {}

  void matrix(const std::string& name, int64_t rows, int64_t cols, double gain) {
    std::normal_distribution<double> normal(0, gain / std::sqrt(static_cast<double>(cols)));
    MadeTensor& tensor = put(name, {rows, cols});
    for (float& value : tensor.values) value = rounded(normal(random_));
  }
  void norm(const std::string& name, bool flat = false) {
    std::uniform_real_distribution<double> uniform(0.5, 1.5);
    for (float& value : put(name, {model_.hidden}).values) value = flat ? 1.0f : rounded(uniform(random_));
  }
  // Of q, k and v, as Qwen 2 has them.
  void biases(const std::string& prefix) {
    std::normal_distribution<double> normal(0, 0.4);
    for (const char* of : {"q", "k", "v"}) {
      const std::string name = prefix + "self_attn." + of + "_proj.";
      for (float& value : put(name + "bias", {model_.at(name + "weight").shape[0]}).values)
        value = rounded(normal(random_));
    }
  }
  // `cols`: of the input of its attention. `gain`: of what it adds to the stream.
  void layer(const std::string& prefix, int64_t cols, double gain) {
    const MadeModel& m = model_;
    norm(prefix + "input_layernorm.weight");
    norm(prefix + "post_attention_layernorm.weight");
    matrix(prefix + "self_attn.q_proj.weight", m.heads * m.head_size, cols, 1);
    matrix(prefix + "self_attn.k_proj.weight", m.kv_heads * m.head_size, cols, 1);
    matrix(prefix + "self_attn.v_proj.weight", m.kv_heads * m.head_size, cols, 1);
    matrix(prefix + "self_attn.o_proj.weight", m.hidden, m.heads * m.head_size, gain);
    matrix(prefix + "mlp.gate_proj.weight", m.ffn, m.hidden, 1);
    matrix(prefix + "mlp.up_proj.weight", m.ffn, m.hidden, 1);
    matrix(prefix + "mlp.down_proj.weight", m.hidden, m.ffn, gain);
  }
  MadeTensor& put(const std::string& name, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    return model_.tensors[name] = {std::move(shape), std::vector<float>(static_cast<size_t>(elements), 0.0f)};
  }

 private:
  MadeModel& model_;
  std::mt19937 random_;
};

std::vector<double> times(const MadeTensor& w, const std::vector<double>& x) {
  std::vector<double> out(static_cast<size_t>(w.shape[0]), 0.0);
  for (size_t r = 0; r < out.size(); ++r)
    for (size_t c = 0; c < x.size(); ++c) out[r] += static_cast<double>(w.values[r * x.size() + c]) * x[c];
  return out;
}

std::vector<double> normed(const std::vector<double>& x, const MadeTensor& w, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * static_cast<double>(w.values[i]);
  return out;
}

void add(std::vector<double>& to, const std::vector<double>& more) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

// Of every head in `x`: value i turns with value i + size / 2.
void rotate(std::vector<double>& x, const MadeModel& m, size_t position) {
  const auto size = static_cast<size_t>(m.head_size);
  for (size_t at = 0; at < x.size(); at += size)
    for (size_t i = 0; i < size / 2; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(m.theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
      const double a = x[at + i], b = x[at + i + size / 2];
      x[at + i] = a * std::cos(angle) - b * std::sin(angle);
      x[at + i + size / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
}

// One decoder layer: `in` is what its attention reads, `stream` what it adds to.
void run_layer(const MadeModel& m, const std::string& prefix, const DoubleRows& in, DoubleRows& stream) {
  const auto w = [&](const char* name) -> const MadeTensor& { return m.at(prefix + name + ".weight"); };
  const auto projected = [&](const char* of, const std::vector<double>& x) {
    const std::string name = prefix + "self_attn." + of + "_proj.";
    std::vector<double> out = times(m.at(name + "weight"), x);
    if (const auto bias = m.tensors.find(name + "bias"); bias != m.tensors.end())
      add(out, {bias->second.values.begin(), bias->second.values.end()});
    return out;
  };
  const auto size = static_cast<size_t>(m.head_size);
  DoubleRows keys, values;
  for (size_t t = 0; t < in.size(); ++t) {
    std::vector<double> q = projected("q", in[t]);
    keys.push_back(projected("k", in[t]));
    values.push_back(projected("v", in[t]));
    rotate(q, m, t);
    rotate(keys.back(), m, t);
    std::vector<double> attended(q.size(), 0.0);
    for (size_t head = 0; head < static_cast<size_t>(m.heads); ++head) {
      const size_t kv = head / static_cast<size_t>(m.heads / m.kv_heads) * size;
      std::vector<double> weights;
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (size_t i = 0; i < size; ++i) dot += q[head * size + i] * keys[s][kv + i];
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(size))));
        total += weights.back();
      }
      for (size_t s = 0; s <= t; ++s)
        for (size_t i = 0; i < size; ++i) attended[head * size + i] += weights[s] / total * values[s][kv + i];
    }
    add(stream[t], times(w("self_attn.o_proj"), attended));
  }
  for (std::vector<double>& row : stream) {
    const std::vector<double> x = normed(row, w("post_attention_layernorm"), m.eps);
    std::vector<double> gate = times(w("mlp.gate_proj"), x);
    const std::vector<double> up = times(w("mlp.up_proj"), x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    add(row, times(w("mlp.down_proj"), gate));
  }
}

std::string layer_prefix(int64_t layer) { return fmt::format("model.layers.{}.", layer); }

// Tokens as directions that are nearly orthogonal, of pairs of dimensions that hardly turn: the first turn with the
// position.
constexpr size_t kTurning = 12, kHalf = 32;
MadeTensor& put_directions(Maker& make, const std::string& name, int64_t vocab) {
  MadeTensor& table = make.put(name, {vocab, 64});
  std::mt19937 random(7);
  for (size_t i = 0; i < table.values.size(); ++i) {
    const bool plus = random() % 2 == 0;
    if (i % kHalf >= kTurning) table.values[i] = plus ? 0.25f : -0.25f;
  }
  return table;
}

}  // namespace

void MadeModel::write(const std::filesystem::path& folder) const {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["{}"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": {}, )"
      R"("hidden_size": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, )"
      R"("intermediate_size": {}, "vocab_size": {}, "rope_theta": {}, "rms_norm_eps": {}, )"
      R"("max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": {}, "tie_word_embeddings": false, )"
      R"("torch_dtype": "bfloat16"{}{}}})",
      architecture, layers, hidden, heads, kv_heads, head_size, ffn, vocab, theta, eps,
      std::min<int64_t>(257, vocab - 1), norm_before_residual ? R"(, "norm_before_residual": true)" : "", extra);
  nlohmann::json header;
  std::string data;
  const auto note = [&](const std::string& name, const char* type, const std::vector<int64_t>& shape, size_t begin) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  };
  if (!d2t.empty()) {
    data.append(reinterpret_cast<const char*>(d2t.data()), d2t.size() * sizeof(int64_t));
    note("d2t", "I64", {static_cast<int64_t>(d2t.size())}, 0);
    const size_t begin = data.size();
    data.append(static_cast<size_t>(vocab + vocab % 2), '\0');
    note("t2d", "BOOL", {vocab + vocab % 2}, begin);
  }
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    for (const float value : tensor.values) {
      const uint16_t bits = bf16_bits(value);
      data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
    note(name, "BF16", tensor.shape, begin);
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text << data;
}

MadeModel random_target(uint32_t seed) {
  MadeModel model{.layers = 4, .vocab = 211};
  Maker make(model, seed);
  const double share = 1 / std::sqrt(static_cast<double>(model.hidden));
  make.matrix("model.embed_tokens.weight", model.vocab, model.hidden, 1);
  for (int64_t layer = 0; layer < model.layers; ++layer) make.layer(layer_prefix(layer), model.hidden, 1.2 * share);
  make.norm("model.norm.weight");
  make.matrix("lm_head.weight", model.vocab, model.hidden, 1);
  return model;
}

MadeModel random_head(uint32_t seed, int64_t guessed, bool norm_before_residual) {
  MadeModel head{.vocab = 211, .norm_before_residual = norm_before_residual};
  head.architecture = "LlamaForCausalLMEagle3";
  head.extra = fmt::format(R"(, "draft_vocab_size": {}, "eagle_aux_hidden_state_layer_ids": [0, 2, 3])", guessed);
  Maker make(head, seed);
  make.matrix("fc.weight", head.hidden, 3 * head.hidden, 0.6);
  make.layer("midlayer.", 2 * head.hidden, norm_before_residual ? 1.2 : 0.15);
  make.norm("midlayer.hidden_norm.weight");
  make.norm("norm.weight");
  make.matrix("lm_head.weight", guessed, head.hidden, 1);
  for (int64_t i = 0; i < guessed && guessed < head.vocab; ++i) head.d2t.push_back(i);  // its token i is token 2 i
  return head;
}

int32_t follows_after(int32_t token, int64_t vocab) { return static_cast<int32_t>((token * 5 + 3) % vocab); }

MadeModel successor_target(int64_t vocab) {
  MadeModel model{.layers = 4, .vocab = vocab};
  Maker make(model, 1);
  const MadeTensor table = put_directions(make, "model.embed_tokens.weight", vocab);
  for (int64_t layer = 0; layer < model.layers; ++layer) make.layer(layer_prefix(layer), model.hidden, 0.02);
  make.norm("model.norm.weight", true);
  MadeTensor& head = make.put("lm_head.weight", {vocab, model.hidden});
  for (int32_t token = 0; token < vocab; ++token)
    std::copy_n(table.values.begin() + token * 64, 64, head.values.begin() + follows_after(token, vocab) * 64);
  return model;
}

MadeModel successor_head(int64_t vocab, int64_t unknown) {
  MadeModel head{.heads = 1, .kv_heads = 1, .head_size = 64, .vocab = vocab, .theta = 1e12};
  head.architecture = "LlamaForCausalLMEagle3";
  Maker make(head, 2);
  MadeTensor table = put_directions(make, "table", vocab);
  head.tensors.erase("table");
  // It reads a half of the token's direction, as it entered the model: and its attention, which looks for rows of the
  // same token as its own, takes that away again and puts the next token's in its place.
  MadeTensor& read = make.put("fc.weight", {64, 192});
  make.layer("midlayer.", 128, 0);
  for (const char* norm : {"midlayer.input_layernorm", "midlayer.hidden_norm", "norm"})
    make.norm(norm + std::string(".weight"), true);
  const double length = 0.25 * std::sqrt(40.0 / 64);  // of a direction: root of the mean of its squares
  const auto scaled = [](const char* name, double by) { return std::pair(std::string(name), by); };
  for (const auto& [name, by] : {scaled("q", 2.0), scaled("k", 2.0), scaled("v", length), scaled("o", 1.0)}) {
    const int64_t cols = name == "o" ? 64 : 128;
    MadeTensor& w = make.put("midlayer.self_attn." + name + "_proj.weight", {64, cols});
    for (int64_t i = 0; i < 64; ++i) {
      w.values[static_cast<size_t>(i * cols + i)] = rounded(by);
      if (name == "v") w.values[static_cast<size_t>(i * cols + 64 + i)] = rounded(-0.5 * by);
    }
  }
  for (int64_t i = 0; i < 64; ++i) read.values[static_cast<size_t>(i * 192 + i)] = 0.5f;
  std::vector<float> rows;
  for (int64_t token = 0; token < vocab; ++token) {
    int32_t before = 0;
    while (follows_after(before, vocab) != token) ++before;
    if (unknown > 0 && token % unknown == 0) continue;
    rows.insert(rows.end(), table.values.begin() + before * 64, table.values.begin() + (before + 1) * 64);
    head.d2t.push_back(token - std::ssize(head.d2t));
  }
  const auto guessed = static_cast<int64_t>(head.d2t.size());
  head.extra = fmt::format(
      R"(, "draft_vocab_size": {}, "eagle_config": {{"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}})", guessed);
  make.put("lm_head.weight", {guessed, 64}).values = rows;
  if (guessed == vocab) head.d2t.clear();
  return head;
}

MadeModel states_head(int64_t vocab) {
  MadeModel head = successor_head(vocab, 0);
  for (float& value : head.tensors.at("midlayer.self_attn.o_proj.weight").values) value = 0;
  // What it reads is the token before the newest: two before the one to be guessed.
  const MadeTensor follows = head.at("lm_head.weight");
  MadeTensor& guesses = head.tensors.at("lm_head.weight");
  for (int32_t token = 0; token < vocab; ++token)
    std::copy_n(follows.values.begin() + token * 64, 64, guesses.values.begin() + follows_after(token, vocab) * 64);
  return head;
}

DoubleRows rows_of(const MadeTensor& table, const std::vector<int32_t>& ids) {
  const auto width = static_cast<int64_t>(table.shape[1]);
  DoubleRows rows;
  for (const int32_t id : ids)
    rows.emplace_back(table.values.begin() + id * width, table.values.begin() + (id + 1) * width);
  return rows;
}

std::vector<DoubleRows> reference_streams(const MadeModel& model, const std::vector<int32_t>& ids) {
  DoubleRows stream = rows_of(model.at("model.embed_tokens.weight"), ids);
  std::vector<DoubleRows> entering;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    entering.push_back(stream);
    const std::string prefix = layer_prefix(layer);
    DoubleRows in;
    for (const auto& row : stream) in.push_back(normed(row, model.at(prefix + "input_layernorm.weight"), model.eps));
    run_layer(model, prefix, in, stream);
  }
  return entering;
}

DoubleRows reference_read(const MadeModel& head, const DoubleRows& states) {
  DoubleRows rows;
  for (const auto& row : states) rows.push_back(times(head.at("fc.weight"), row));
  return rows;
}

HeadRows reference_head(const MadeModel& head, const DoubleRows& embedded, const DoubleRows& states) {
  HeadRows out{.own = states, .logits = {}};
  DoubleRows in;
  for (size_t t = 0; t < states.size(); ++t) {
    in.push_back(normed(embedded[t], head.at("midlayer.input_layernorm.weight"), head.eps));
    const std::vector<double> more = normed(states[t], head.at("midlayer.hidden_norm.weight"), head.eps);
    in.back().insert(in.back().end(), more.begin(), more.end());
    if (head.norm_before_residual) out.own[t] = more;
  }
  run_layer(head, "midlayer.", in, out.own);
  for (const auto& row : out.own)
    out.logits.push_back(times(head.at("lm_head.weight"), normed(row, head.at("norm.weight"), head.eps)));
  return out;
}

namespace {

constexpr char kMtp[] = "model.mtp_layers.0.";

void make_mimo(MadeModel& model, bool biases) {
  model.architecture = "MiMoForCausalLM";
  model.extra = fmt::format(R"(, "num_nextn_predict_layers": 1, "attention_bias": {})", biases);
}

}  // namespace

MadeModel random_mimo(uint32_t seed) {
  MadeModel model = random_target(seed);
  make_mimo(model, true);
  Maker make(model, seed + 1);
  make.layer(kMtp, model.hidden, 0.15);
  for (int64_t layer = 0; layer < model.layers; ++layer) make.biases(layer_prefix(layer));
  make.biases(kMtp);
  make.matrix(kMtp + std::string("input_proj.weight"), model.hidden, 2 * model.hidden, 0.15);
  for (const char* norm : {"token_layernorm", "hidden_layernorm", "final_layernorm"})
    make.norm(kMtp + std::string(norm) + ".weight");
  return model;
}

MadeModel successor_mimo(int64_t vocab) {
  MadeModel model = successor_target(vocab);
  make_mimo(model, false);
  Maker make(model, 4);
  make.layer(kMtp, model.hidden, 0.01);
  for (const char* norm : {"token_layernorm", "hidden_layernorm", "final_layernorm"})
    make.norm(kMtp + std::string(norm) + ".weight", true);
  // The next token's direction, and nothing of the state.
  MadeTensor& read = make.put(kMtp + std::string("input_proj.weight"), {64, 128});
  for (int64_t i = 0; i < 64; ++i) read.values[static_cast<size_t>(i * 128 + 64 + i)] = 1.0f;
  return model;
}

DoubleRows reference_final(const MadeModel& model, const std::vector<int32_t>& ids) {
  MadeModel longer = model;  // one layer more, to see what enters it
  longer.layers = model.layers + 1;
  for (const auto& [name, tensor] : model.tensors)
    if (const std::string last = layer_prefix(model.layers - 1); name.starts_with(last))
      longer.tensors[layer_prefix(model.layers) + name.substr(last.size())] = tensor;
  DoubleRows rows;
  const std::vector<DoubleRows> streams = reference_streams(longer, ids);
  for (const auto& row : streams.back()) rows.push_back(normed(row, model.at("model.norm.weight"), model.eps));
  return rows;
}

HeadRows reference_mtp(const MadeModel& m, const DoubleRows& embedded, const DoubleRows& states) {
  const auto w = [&m](const char* name) -> const MadeTensor& { return m.at(kMtp + std::string(name) + ".weight"); };
  HeadRows out;
  DoubleRows stream, in;
  for (size_t t = 0; t < states.size(); ++t) {
    std::vector<double> both = normed(states[t], w("hidden_layernorm"), m.eps);
    std::vector<double> token = t == 0 ? std::vector<double>(embedded[t].size(), 0.0) : embedded[t];
    token = normed(token, w("token_layernorm"), m.eps);
    both.insert(both.end(), token.begin(), token.end());
    stream.push_back(times(w("input_proj"), both));
    in.push_back(normed(stream.back(), w("input_layernorm"), m.eps));
  }
  run_layer(m, kMtp, in, stream);
  for (const auto& row : stream) {
    out.own.push_back(normed(row, w("final_layernorm"), m.eps));
    out.logits.push_back(times(m.at("lm_head.weight"), out.own.back()));
  }
  return out;
}

}  // namespace ingot::testing
