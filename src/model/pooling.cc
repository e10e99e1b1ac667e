#include "model/pooling.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/computed_checkpoint.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "model/families/family.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Kind = Pooling::Kind;

// Qwen3-Reranker has no mark of its own in its files but its name.
bool named_reranker(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return c == ' ' ? '-' : std::tolower(c); });
  return name.find("qwen3-reranker") != std::string::npos;
}

// 1_Pooling/config.json: one flag a mode, or the mode by its name.
Kind read_mode(const JsonView& json) {
  const std::pair<const char*, Kind> modes[] = {{"lasttoken", Kind::last},
                                                {"mean_tokens", Kind::mean},
                                                {"mean", Kind::mean},
                                                {"cls_token", Kind::first},
                                                {"cls", Kind::first}};
  Kind kind = Kind::none;
  const std::string named = json.find_string("pooling_mode").value_or("");
  for (const auto& [name, mode] : modes)
    if (named == name || json.find_bool(std::string("pooling_mode_") + name).value_or(false)) {
      if (kind != Kind::none && kind != mode) return Kind::none;  // several, put side by side
      kind = mode;
    }
  return kind;
}

}  // namespace

void read_pooling(const fs::path& dir, const JsonView& json, ModelConfig& config) {
  const std::vector<std::string> answers = json.find("classifier_from_token") != nullptr
                                               ? json.find_strings("classifier_from_token")
                                               : std::vector<std::string>();
  config.reranks =
      answers == std::vector<std::string>{"no", "yes"} || named_reranker(fs::absolute(dir).lexically_normal().string());
  const fs::path list = dir / "modules.json";
  if (!fs::exists(list)) return;
  const nlohmann::json modules = read_json_file(list);
  if (!modules.is_array()) throw_error(ErrorKind::bad_file, "{}: must be a list of modules", list.string());
  Pooling pooling{.normalize = false};
  for (const nlohmann::json& element : modules) {
    const JsonView module(element, list.string());
    const std::string type = module.find_string("type").value_or("");
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      pooling.normalize = true;
    } else if (name == "Pooling") {
      const fs::path path = dir / module.find_string("path").value_or("1_Pooling") / "config.json";
      const nlohmann::json mode = read_json_file(path);
      pooling.kind = read_mode(JsonView(mode, path.string()));
    } else {
      return;  // something that is not computed here (Dense, ...): its vectors would be others
    }
  }
  config.pooling = pooling;
  const fs::path path = dir / "config_sentence_transformers.json";
  if (!fs::exists(path)) return;
  const nlohmann::json settings = read_json_file(path);
  if (const auto prompts = JsonView(settings, path.string()).find_object("prompts")) {
    config.query_prompt = prompts->find_string("query").value_or("");
    config.document_prompt = prompts->find_string("document").value_or("");
  }
}

int64_t gguf_pooling_type(Kind kind) { return kind == Kind::mean ? 1 : kind == Kind::first ? 2 : 3; }

void read_pooling(const GgufKeys& keys, ModelConfig& config) {
  const int64_t type = keys.find_int("pooling_type").value_or(0);
  for (const Kind kind : {Kind::mean, Kind::first, Kind::last})
    if (type == gguf_pooling_type(kind)) config.pooling.kind = kind;
  config.reranks = named_reranker(config.name);
}

std::shared_ptr<Checkpoint> with_wrapper_names(std::shared_ptr<Checkpoint> checkpoint, ModelConfig& config) {
  if (checkpoint->find("embed_tokens.weight") == nullptr) return checkpoint;
  auto renamed = std::make_shared<ComputedCheckpoint>(checkpoint, 1);
  for (TensorView tensor : checkpoint->tensors()) {
    if (!tensor.name.starts_with("lm_head.")) tensor.name = "model." + tensor.name;
    renamed->add(std::move(tensor));
  }
  if (!config.tied_embeddings && renamed->find("lm_head.weight") == nullptr) {
    config.has_head = false;
    config.tied_embeddings = true;  // nothing reads it
  }
  return renamed;
}

}  // namespace ingot
