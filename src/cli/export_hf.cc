#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/common.h"
#include "cli/options.h"
#include "core/error.h"
#include "formats/gguf.h"
#include "model/export.h"
#include "model/open_model.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_readers.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

struct ExportArgs {
  std::string file;
  std::string folder;
};

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw_error(ErrorKind::io, "{}: cannot be written", path.string());
}

// The same file under another name costs no disk; a copy where the file system cannot do that.
void link_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(to) && fs::equivalent(from, to, error)) return;
  fs::remove(to, error);
  fs::create_hard_link(fs::canonical(from), to, error);
  if (!error) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) throw_error(ErrorKind::io, "{}: cannot be copied to {}: {}", from.string(), to.string(), error.message());
}

void export_hf(const ExportArgs& args) {
  const ModelFiles files = open_model(args.file);
  if (!files.gguf)
    throw_error(ErrorKind::bad_call, "{}: not a GGUF file; a Hugging Face folder needs no export", args.file);
  if (args.file.find("-of-0") != std::string::npos)
    throw_error(ErrorKind::declined, "{}: split files are not exported; join them first", args.file);
  const TokenizerData tokenizer = read_gguf_tokenizer(*files.gguf, args.file);
  const fs::path folder = args.folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw_error(ErrorKind::io, "{}: cannot be created: {}", folder.string(), error.message());

  ModelConfig config = files.config;
  config.bos_id = tokenizer.bos_id;
  config.eos_ids.clear();
  if (tokenizer.eos_id >= 0) config.eos_ids = {tokenizer.eos_id};
  write_file(folder / "config.json", write_hf_config(config));
  write_file(folder / "generation_config.json", nlohmann::json{{"eos_token_id", tokenizer.end_ids}}.dump(1) + "\n");
  write_file(folder / "tokenizer.json", write_tokenizer_json(tokenizer));
  write_file(folder / "tokenizer_config.json", write_tokenizer_config(tokenizer, files.config.max_position));
  link_file(files.gguf->name(), folder / fs::path(files.gguf->name()).filename());
  fmt::print("{}: config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the GGUF\n",
             folder.string());
}

}  // namespace

void add_export_hf(Program& program) {
  auto [command, args] = program.add_command("export-hf", "a folder that vLLM can serve, from a GGUF file", export_hf);
  command.option("file", args.file, "the GGUF file").required();
  command.option("folder", args.folder, "the folder to write").required();
}

}  // namespace ingot::cli
