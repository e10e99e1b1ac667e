#include <fstream>

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/mapped_file.h"
#include "formats/model_location.h"
#include "text/tokenizer_load.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void read_template_files(const fs::path& folder, TokenizerData& data) {
  std::error_code ignored;
  if (fs::path path = folder / "chat_template.jinja"; fs::exists(path, ignored)) {
    data.chat_template = std::string(text_of(MappedFile::open(path)));
  }
  for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates", ignored)) {
    if (entry.path().extension() != ".jinja") continue;
    data.named_templates[entry.path().stem().string()] = std::string(text_of(MappedFile::open(entry.path())));
  }
}

}  // namespace

TokenizerData read_folder_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  TokenizerData data;
  if (const fs::path path = folder / "tokenizer.json"; fs::exists(path, ignored)) {
    data = read_hf_tokenizer(text_of(MappedFile::open(path)), path.string());
  } else if (const fs::path tekken = folder / "tekken.json"; fs::exists(tekken, ignored)) {
    data = read_tekken_tokenizer(text_of(MappedFile::open(tekken)), tekken.string());
  } else {
    throw_error(ErrorKind::declined,
                "{}: neither tokenizer.json nor tekken.json is there: add one, or run the model on token ids",
                folder.string());
  }
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path, ignored)) continue;
    apply_tokenizer_config(data, text_of(MappedFile::open(path)), path.string());
    break;
  }
  read_template_files(folder, data);
  find_end_tokens(data);
  return data;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& folder) {
  return std::make_shared<const Tokenizer>(read_folder_tokenizer(folder));
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& model) {
  const ModelLocation found = find_model(model);
  return found.gguf.empty() ? load_tokenizer(found.folder) : load_tokenizer(*GgufFile::open(found.gguf));
}

std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& model, const std::string& load_format) {
  try {
    return load_format == "dummy" ? load_tokenizer(fs::path(model)) : open_tokenizer(model);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::declined) throw;
    return nullptr;
  }
}

}  // namespace ingot
