#include <algorithm>

#include "core/error.h"
#include "formats/json.h"
#include "model/families/family.h"

// EAGLE-3 (arXiv 2503.01840): one decoder layer that guesses the tokens of another model. Row p of it reads the token
// at p + 1 and what three layers of the model made of position p, side by side, brought to its own width by a product;
// it guesses the token at p + 2, among fewer tokens than the model has. The guesses behind that one take the layer's
// own result in the place of the model's states.
namespace ingot {
namespace {

constexpr int64_t kStates = 3;  // layers of the model that it reads
constexpr int64_t kMostLayers = 1 << 12, kMostWidth = 1 << 20, kMostTokens = 1 << 24;

// Layers whose input is read, as vLLM's and speculators' configurations count them; eagle_config names those whose
// output is.
std::vector<int> read_layers(const JsonView& json) {
  std::vector<int64_t> layers = json.find_ints("eagle_aux_hidden_state_layer_ids");
  int64_t behind = 0;
  if (const auto own = json.find_object("eagle_config"); own && layers.empty()) {
    if (!own->find_bool("use_aux_hidden_state").value_or(true))
      throw_error(ErrorKind::declined,
                  "{}: a head that reads the last layer alone (use_aux_hidden_state false) is not run here",
                  json.name());
    layers = own->find_ints("eagle_aux_hidden_state_layer_ids");
    behind = 1;
  }
  if (!layers.empty() && std::ssize(layers) != kStates)
    throw_error(ErrorKind::declined,
                "{}: a head that reads {} layers of its model is not run here, those that read {} are", json.name(),
                layers.size(), kStates);
  std::vector<int> read;
  for (const int64_t layer : layers) {
    if (layer < 0 || layer > kMostLayers)
      throw_error(ErrorKind::bad_file, "{}: eagle_aux_hidden_state_layer_ids has {}, which is no layer", json.name(),
                  layer);
    read.push_back(static_cast<int>(layer + behind));
  }
  return read;
}

void read_eagle3(const JsonView& json, ModelConfig& config) {
  if (config.layers != 1)
    throw_error(ErrorKind::declined, "{}: an EAGLE-3 head of {} layers is not run here, those of one are", json.name(),
                config.layers);
  ModelConfig::Head& head = config.head;
  head.kind = ModelConfig::Head::Kind::eagle3;
  const int64_t width = json.find_int("target_hidden_size").value_or(config.hidden);
  if (width < 1 || width > kMostWidth)
    throw_error(ErrorKind::bad_file, "{}: target_hidden_size {} is impossible", json.name(), width);
  if (config.vocab < 1 || config.vocab > kMostTokens)
    throw_error(ErrorKind::bad_file, "{}: vocab_size {} is impossible", json.name(), config.vocab);
  head.reads = kStates * width;
  config.tied_embeddings = false;
  head.vocab = config.vocab;
  head.norm_before_residual = json.find_bool("norm_before_residual").value_or(false);
  head.state_layers = read_layers(json);
  config.vocab = json.find_int("draft_vocab_size").value_or(config.vocab);
  if (config.vocab > head.vocab)
    throw_error(ErrorKind::bad_file, "{}: draft_vocab_size {} is over the vocab_size of {}", json.name(), config.vocab,
                head.vocab);
}

}  // namespace

bool is_eagle3(const JsonView& json) {
  const std::vector<std::string> names = json.find_strings("architectures");
  const auto is = [&names](const char* name) { return std::ranges::find(names, name) != names.end(); };
  // The first ones published call themselves what their layer is.
  return is("LlamaForCausalLMEagle3") || is("Eagle3LlamaForCausalLM") ||
         (is("LlamaForCausalLM") && json.has("draft_vocab_size"));
}

const Family families::eagle3 = {.hf = "LlamaForCausalLMEagle3",
                                 .model_type = "eagle3",
                                 .gguf = "eagle3",
                                 .reads_gguf = false,
                                 .head = true,
                                 .base = {.layers = 1, .max_position = 2048},
                                 .settings = {kOutputBias, kAttentionBias, kMlpBias},
                                 .tensors = {{"token_embd", "embed_tokens"},
                                             {"read_states", "fc"},
                                             {"output_norm", "norm"},
                                             {"blk.{}.", "midlayer."},
                                             {"head_norm", "hidden_norm"}},
                                 .read_hf = read_eagle3};

}  // namespace ingot
