#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "cli/common.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/stop_signals.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/block_quant.h"
#include "formats/gguf_write.h"
#include "model/config_read.h"
#include "model/export.h"
#include "model/open_model.h"
#include "model/quantized.h"
#include "text/tokenizer_gguf_write.h"
#include "text/tokenizer_readers.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

struct QuantizeArgs {
  std::string in, out;
  std::string type = "q4_k";
  bool force = false;
  int threads = 0;
};

constexpr DType kTypes[] = {DType::q8_0, DType::q4_0, DType::q4_k, DType::iq4_nl};

constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts

// A folder may have no tokenizer: then the file has none either and is run on token ids.
void put_tokenizer(GgufValues& values, const ModelFiles& files) {
  if (!fs::exists(files.dir / "tokenizer.json") && !fs::exists(files.dir / "tekken.json")) {
    values.put_text("tokenizer.ggml.model", "none");
    if (files.config.bos_id >= 0) values.put_u32("tokenizer.ggml.bos_token_id", files.config.bos_id);
    if (!files.config.eos_ids.empty()) values.put_u32("tokenizer.ggml.eos_token_id", files.config.eos_ids[0]);
    return;
  }
  TokenizerData data = read_folder_tokenizer(files.dir);
  if (data.bos_id < 0 && data.prefix.empty()) data.bos_id = files.config.bos_id;
  if (data.eos_id < 0 && data.suffix.empty() && !files.config.eos_ids.empty()) data.eos_id = files.config.eos_ids[0];
  put_gguf_tokenizer(values, data, files.config.vocab);
  for (const int32_t id : files.config.eos_ids) {
    if (id == data.eos_id) continue;
    values.put_u32("tokenizer.ggml.eot_token_id", id);  // the other token that ends a text
    break;
  }
}

void quantize_file(const QuantizeArgs& args) {
  const std::optional<DType> type = parse_dtype(args.type);
  if (std::ranges::find(kTypes, type) == std::end(kTypes))
    throw_error(ErrorKind::bad_call, "--type {}: must be {}", args.type, names_of(kTypes));
  const GgufTarget target{args.out, args.force};
  std::error_code unknown;  // of a file that is not there yet
  if (fs::equivalent(args.in, args.out, unknown))
    throw_error(ErrorKind::bad_call, "{}: is the model itself; give the result another name", args.out);
  const ModelFiles files = open_model(resolve_model(args.in), args.threads);
  if (files.config.head)
    throw_error(
        ErrorKind::declined,
        "{}: a head that guesses tokens is not written as GGUF; --quantize packs its weights while it is loaded",
        args.in);
  std::shared_ptr<Checkpoint> checkpoint =
      quantize_checkpoint(files.checkpoint, files.config, files.style(), {*type, DType::q8_0}, args.threads,
                          files.config.packed.method == PackedFormat::Method::none);
  GgufValues values;
  if (files.gguf) {
    values.copy(*files.gguf);
  } else {
    GgufExport exported = export_gguf(checkpoint, files.config);
    values = std::move(exported.values);
    checkpoint = exported.checkpoint;
    put_tokenizer(values, files);
  }
  const std::optional<DType> dominant = parse_dtype(dominant_format(*checkpoint));
  values.put_u32("general.file_type", dtype_info(dominant.value_or(DType::f32)).file_type);
  values.put_u32("general.quantization_version", kQuantizationVersion);
  {
    StopSignals signals;
    signals.begin_counting();
    Progress progress("quantizing", Progress::Unit::bytes);
    write_gguf(target, values, *checkpoint, [&](size_t done, size_t total) {
      if (signals.wait(std::chrono::milliseconds(0)))
        throw_error(ErrorKind::io, "{}: interrupted; nothing was written", args.out);
      progress.update(done, total);
    });
  }
  fmt::print("{}: {} from {}\n", args.out, format_bytes(fs::file_size(args.out)),
             format_bytes(files.checkpoint->file_bytes()));
}

}  // namespace

void add_quantize(Program& program) {
  auto [command, args] =
      program.add_command("quantize", "write a model as a GGUF file with its matrices in fewer bits", quantize_file);
  command.option("IN", args.in, "a Hugging Face folder, or a GGUF model with f32, f16 or bf16 matrices").required();
  command.option("OUT", args.out, "the GGUF file to write; it appears when it is complete").required();
  const std::string types = names_of(kTypes) +
                            "; the embedding and the head are q8_0; rows that are no multiple of 256 are q5_0 instead "
                            "of q4_k, rows that are no multiple of 32 stay";
  command.option("--type", args.type, types.c_str()).show_default();
  command.flag("--force", args.force, "overwrite OUT where it is there already");
  command.option("--threads", args.threads, "0: one a core this process may use").show_default().range(0, 1024);
}

}  // namespace ingot::cli
