#include "model/head_files.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "formats/computed_checkpoint.h"

namespace ingot {
namespace {

constexpr std::string_view kModel = "model.", kLayer = "layers.0.";

// model.layers.0.mlp.up_proj.weight: midlayer.mlp.up_proj.weight
std::string common_name(std::string name) {
  if (name.starts_with(kModel)) name.erase(0, kModel.size());
  if (name.starts_with(kLayer)) name.replace(0, kLayer.size(), "midlayer.");
  return name;
}

// d2t: for each token that the head guesses, by how much the model's number of it is larger.
std::vector<int32_t> read_guessed_ids(const SafetensorsCheckpoint::Unsupported& table, const ModelConfig& config,
                                      const std::string& where) {
  if (table.dtype != "I64" || table.shape != std::vector<int64_t>{config.vocab})
    throw_error(ErrorKind::bad_file, "{}: tensor d2t must be {} numbers of type I64", where, config.vocab);
  std::vector<int32_t> ids(static_cast<size_t>(config.vocab));
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t more = 0;
    std::memcpy(&more, table.data.data() + i * sizeof more, sizeof more);
    const auto least = -static_cast<int64_t>(i);
    if (more < least || more >= least + config.head.vocab)
      throw_error(ErrorKind::bad_file, "{}: tensor d2t: token {} would be {} + {}, outside the vocabulary of {}", where,
                  i, i, more, config.head.vocab);
    ids[i] = static_cast<int32_t>(static_cast<int64_t>(i) + more);
  }
  return ids;
}

}  // namespace

std::shared_ptr<Checkpoint> adapt_head(const std::shared_ptr<SafetensorsCheckpoint>& stored, ModelConfig& config) {
  for (const auto& table : stored->unsupported())
    if (common_name(table.name) == "d2t") config.head.guessed_ids = read_guessed_ids(table, config, stored->describe());
  if (config.head.guessed_ids.empty() && config.vocab != config.head.vocab)
    throw_error(ErrorKind::bad_file, "{}: tensor d2t is missing: it says which {} of {} tokens are guessed",
                stored->describe(), config.vocab, config.head.vocab);
  auto renamed = std::make_shared<ComputedCheckpoint>(stored, 1);
  for (TensorView tensor : stored->tensors()) {
    tensor.name = common_name(std::move(tensor.name));
    renamed->add(std::move(tensor));
  }
  return renamed;
}

}  // namespace ingot
