#include "engine/heads.h"

#include <filesystem>

#include "core/error.h"
#include "model/config_read.h"
#include "model/file_table.h"

namespace ingot {

std::optional<HeadNeeds> Engine::head_needs(const std::string& model, const std::string& beside) {
  const std::filesystem::path folder(model);
  if (!std::filesystem::exists(folder / "config.json")) return std::nullopt;  // GGUF, or nothing that can be loaded
  const ModelConfig config = read_hf_config(folder);
  // MTP layers guess for the model that they are in.
  if (config.mtp_layers > 0 && model == beside) return HeadNeeds{{static_cast<int>(config.layers)}};
  if (!config.head) return std::nullopt;
  return HeadNeeds{config.head.state_layers};
}

std::shared_ptr<const RowTable> open_head_embedding(const ModelFiles& head, const EngineOptions& options) {
  const ModelConfig& config = head.config;
  if (options.head_of.empty())
    throw_error(ErrorKind::declined,
                "{}: it guesses tokens from the hidden state of another model and makes no text by itself; give it "
                "beside that model: --draft-model",
                options.model);
  if (const TensorView* own = head.checkpoint->find("embed_tokens.weight")) {
    if (own->shape != std::vector<int64_t>{config.head.vocab, config.hidden})
      throw_error(ErrorKind::bad_file, "tensor {}: its shape is not [{}, {}]", own->name, config.head.vocab,
                  config.hidden);
    return tensor_table(head.checkpoint, *own);
  }
  if (options.load_format == "dummy")
    throw_error(ErrorKind::declined, "{}: it has no embedding of its own, and dummy weights have none", options.model);
  if (config.head.kind == ModelConfig::Head::Kind::mtp && config.tied_embeddings)
    throw_error(ErrorKind::declined, "{}: MTP layers of a model whose embedding is its output layer are not run here",
                options.model);
  const ModelFiles files = open_model(options.head_of, options.threads);
  const ModelConfig& model = files.config;
  if (model.hidden != config.hidden || model.vocab != config.head.vocab)
    throw_error(ErrorKind::declined,
                "{}: it reads an embedding of {} tokens by {}, {} has one of {} by {}; take the head that was made for "
                "this model",
                options.model, config.head.vocab, config.hidden, options.head_of, model.vocab, model.hidden);
  if (model.embedding_scale != 1 || model.learned_positions)
    throw_error(ErrorKind::declined, "{}: it has no embedding of its own, and that of a {} model is not only a table",
                options.model, model.architecture);
  return file_table(files.checkpoint, model, files.style());
}

std::vector<int> state_layers(const EngineOptions& options, int64_t layers) {
  const auto count = static_cast<int>(layers);
  return options.state_layers.empty() ? std::vector<int>{2, count / 2, count - 3} : options.state_layers;
}

bool gives_final_states(const ModelConfig& config, const EngineOptions& options) {
  if (config.head.kind == ModelConfig::Head::Kind::mtp) return true;
  return options.gives_states && state_layers(options, config.layers).back() == config.layers;
}

void check_gives_states(const ModelConfig& config, const EngineOptions& options) {
  if (options.ranks() > 1)
    throw_error(ErrorKind::declined, "hidden states for a head are given by one rank alone: leave out --tp and --pp");
  if (config.residual_scale != 1)
    throw_error(ErrorKind::declined, "a {} model has its hidden states in another scale than heads read them",
                config.architecture);
  for (const int layer : state_layers(options, config.layers))
    if (layer < 0 || layer > config.layers || (layer == config.layers && options.state_layers.size() > 1))
      throw_error(ErrorKind::declined,
                  "a head that reads what enters layer {} was not made for a model of {} layers, which are numbered "
                  "from 0",
                  layer, config.layers);
}

}  // namespace ingot
