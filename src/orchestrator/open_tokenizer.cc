#include "orchestrator/open_tokenizer.h"

#include "formats/gguf.h"
#include "model/open_model.h"
#include "text/tokenizer.h"

namespace ingot {

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& model, bool dummy) {
  if (dummy) return load_tokenizer(std::filesystem::path(model));
  const ModelFiles files = open_model(model);
  return files.gguf ? load_tokenizer(*files.gguf) : load_tokenizer(files.dir);
}

}  // namespace ingot
