#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/common.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/gguf_write.h"
#include "model/open_model.h"
#include "model/quantized.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

struct QuantizeArgs {
  std::string in, out;
  std::string type = "q4_k";
  int threads = 0;
};

struct FileType {
  const char* name;
  DType layers;
  uint32_t number;  // llama.cpp's general.file_type
};
constexpr FileType kFileTypes[] = {{"q8_0", DType::q8_0, 7}, {"q4_0", DType::q4_0, 2}, {"q4_k", DType::q4_k, 14}};

void quantize_file(const QuantizeArgs& args) {
  const FileType* type = nullptr;
  for (const FileType& known : kFileTypes)
    if (args.type == known.name) type = &known;
  if (type == nullptr) throw_error(ErrorKind::bad_call, "--type {}: must be q8_0, q4_0 or q4_k", args.type);
  const ModelFiles files = open_model(args.in);
  if (files.gguf == nullptr)
    throw_error(ErrorKind::declined,
                "{}: only GGUF files are read here; run a folder with --quantize, or convert it to GGUF first",
                args.in);
  std::error_code unknown;  // of a file that is not there yet
  if (fs::equivalent(args.in, args.out, unknown))
    throw_error(ErrorKind::bad_call, "{}: is the model itself; give the result another name", args.out);
  const std::shared_ptr<Checkpoint> quantized =
      quantize_checkpoint(files.checkpoint, files.config, NameStyle::gguf, {type->layers, DType::q8_0}, args.threads);
  {
    ProgressBar bar("quantizing");
    write_gguf(args.out, *files.gguf, *quantized, type->number,
               [&bar](size_t done, size_t total) { bar.update(done, total); });
  }
  fmt::print("{}: {} from {}\n", args.out, format_bytes(fs::file_size(args.out)),
             format_bytes(files.checkpoint->file_bytes()));
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto args = std::make_shared<QuantizeArgs>();
  CLI::App* command = app.add_subcommand("quantize", "write a GGUF model with its matrices in fewer bits");
  command->add_option("IN", args->in, "a GGUF model with f32, f16 or bf16 matrices")->required();
  command->add_option("OUT", args->out, "the GGUF file to write; it appears when it is complete")->required();
  command
      ->add_option("--type", args->type,
                   "q8_0, q4_0 or q4_k; the embedding and the head are q8_0, rows that no block fits stay")
      ->capture_default_str();
  command->add_option("--threads", args->threads, "0: one a core this process may use")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->callback([args] { quantize_file(*args); });
}

}  // namespace ingot::cli
