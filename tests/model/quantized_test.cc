#include "model/quantized.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "formats/convert_rows.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "formats/test_files.h"
#include "model/open_model.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

ModelFiles open_fixture(const std::string& name) {
  const fs::path dir = fs::path(INGOT_FIXTURES) / "models" / name;
  return open_model(dir.string());
}

std::shared_ptr<Checkpoint> quantize_fixture(const ModelFiles& files, const QuantScheme& scheme) {
  return quantize_checkpoint(files.checkpoint, files.config, files.style(), scheme, 2);
}

std::vector<std::byte> make(const Checkpoint& checkpoint, const TensorView& tensor) {
  const std::shared_ptr<PageBuffer> computed = checkpoint.compute(tensor);
  return {computed->bytes().begin(), computed->bytes().end()};
}

// Every element converted by hand; `stored` is [rows, cols].
std::vector<std::byte> by_hand(const TensorView& stored, const std::byte* data, DType type) {
  const auto elements = static_cast<size_t>(stored.elements());
  std::vector<float> values(elements);
  dequantize(stored.dtype, data, elements, values.data());
  std::vector<std::byte> bytes(dtype_bytes(type, elements));
  quantize(type, values.data(), elements, bytes.data());
  return bytes;
}

TEST(Quantized, MatricesAreMadeAndTheRestStays) {
  const ModelFiles files = open_fixture("llama-bf16-llama3");
  const auto quantized = quantize_fixture(files, parse_quantize("int4"));
  size_t computed = 0;
  for (const TensorView& tensor : quantized->tensors()) {
    const TensorView& stored = files.checkpoint->get(tensor.name);
    EXPECT_EQ(tensor.shape, stored.shape) << tensor.name;
    if (tensor.shape.size() == 1) {
      EXPECT_FALSE(tensor.is_computed()) << tensor.name;
      EXPECT_EQ(tensor.data.data(), stored.data.data()) << tensor.name;
      continue;
    }
    if (!tensor.is_computed()) continue;  // rows of no multiple of 32
    ++computed;
    const bool table = tensor.name == "model.embed_tokens.weight" || tensor.name == "lm_head.weight";
    EXPECT_EQ(tensor.dtype, table                        ? DType::q8_0
                            : tensor.shape[1] % 256 == 0 ? DType::q4_k
                                                         : DType::q5_0)
        << tensor.name;
    EXPECT_EQ(make(*quantized, tensor), by_hand(stored, stored.data.data(), tensor.dtype)) << tensor.name;
  }
  EXPECT_GT(computed, 4u);
}

TEST(Quantized, TransposedMatricesAreTurned) {
  const ModelFiles files = open_fixture("gpt2-bf16");
  const auto quantized = quantize_fixture(files, parse_quantize("int8"));
  size_t turned = 0;
  for (const TensorView& tensor : quantized->tensors()) {
    const TensorView& stored = files.checkpoint->stored().get(tensor.name);
    if (!tensor.is_computed() || tensor.name.find(".mlp.c_proj.") == std::string::npos) continue;
    ++turned;
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{stored.shape[1], stored.shape[0]}));
    std::vector<std::byte> other_way(stored.data.size());
    transpose(stored, other_way.data());
    EXPECT_EQ(make(*quantized, tensor), by_hand(stored, other_way.data(), tensor.dtype)) << tensor.name;
  }
  EXPECT_EQ(turned, static_cast<size_t>(files.config.layers));
}

TEST(Quantized, WhatCannotBeDoneIsRefused) {
  const ModelFiles files = open_fixture("gguf-q8_0-llama3");
  expect_error(ErrorKind::bad_call, "has no matrix to quantize",
               [&] { quantize_fixture(files, parse_quantize("int8")); });
  expect_error(ErrorKind::bad_call, "--quantize int3: must be int8 or int4", [] { parse_quantize("int3"); });
}

TEST(WriteGguf, KeepsMetadataAndWritesWhatIsMade) {
  const ModelFiles files = open_fixture("gguf-bf16-llama3");
  const auto quantized = quantize_fixture(files, {DType::q4_0, DType::q8_0});
  const fs::path path = fs::temp_directory_path() / ("ingot_write_" + std::to_string(::getpid()) + ".gguf");
  GgufValues values;
  values.copy(*files.gguf);
  values.put_u32("general.file_type", 2);
  write_gguf({path}, values, *quantized, {});
  const std::shared_ptr<GgufFile> written = GgufFile::open(path);
  fs::remove(path);
  EXPECT_EQ(written->get_int("general.file_type"), 2);
  for (const auto& [key, value] : files.gguf->values())
    if (key != "general.file_type" && key != "general.quantization_version") {
      const GgufValue* found = written->find_value(key);
      EXPECT_TRUE(found != nullptr && *found == value) << key;
    }
  ASSERT_EQ(written->tensors().size(), quantized->tensors().size());
  for (const TensorView& tensor : quantized->tensors()) {
    const TensorView& found = written->get(tensor.name);
    EXPECT_EQ(found.dtype, tensor.dtype);
    EXPECT_EQ(found.shape, tensor.shape);
    const std::vector<std::byte> bytes = tensor.is_computed()
                                             ? make(*quantized, tensor)
                                             : std::vector<std::byte>(tensor.data.begin(), tensor.data.end());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), found.data.begin(), found.data.end())) << tensor.name;
  }
}

// Neither a half-written file nor its remains.
TEST(WriteGguf, AFailureLeavesNothing) {
  const ModelFiles files = open_fixture("gguf-bf16-llama3");
  const auto quantized = quantize_fixture(files, {DType::q8_0, DType::q8_0});
  const fs::path dir = fs::temp_directory_path() / ("ingot_write_fails_" + std::to_string(::getpid()));
  fs::create_directories(dir / "taken.gguf");  // a folder: nothing can be renamed over it
  GgufValues values;
  values.copy(*files.gguf);
  const auto entries = [&] { return std::distance(fs::directory_iterator(dir), fs::directory_iterator()); };
  expect_error(ErrorKind::bad_call, "is a folder", [&] { write_gguf({dir / "taken.gguf"}, values, *quantized, {}); });
  // Half-way.
  const auto stop = [](size_t done, size_t) {
    if (done > 1000) throw_error(ErrorKind::io, "stopped");
  };
  expect_error(ErrorKind::io, "stopped", [&] { write_gguf({dir / "new.gguf"}, values, *quantized, stop); });
  EXPECT_EQ(entries(), 1);
  write_gguf({dir / "new.gguf"}, values, *quantized, {});
  EXPECT_EQ(entries(), 2);
  expect_error(ErrorKind::bad_call, "is there already",
               [&] { write_gguf({dir / "new.gguf"}, values, *quantized, {}); });
  const auto before = fs::last_write_time(dir / "new.gguf");
  expect_error(ErrorKind::io, "stopped", [&] { write_gguf({dir / "new.gguf", true}, values, *quantized, stop); });
  EXPECT_EQ(fs::last_write_time(dir / "new.gguf"), before);
  write_gguf({dir / "new.gguf", true}, values, *quantized, {});
  EXPECT_EQ(entries(), 2);
  expect_error(ErrorKind::io, "cannot be created",
               [&] { write_gguf({dir / "no" / "x.gguf"}, values, *quantized, {}); });
  fs::remove_all(dir);
}

// What a killed writer left goes when the same file is written again; what somebody still writes stays.
TEST(WriteGguf, RemovesWhatAKilledWriterLeft) {
  const ModelFiles files = open_fixture("gguf-bf16-llama3");
  const fs::path dir = fs::temp_directory_path() / ("ingot_write_orphans_" + std::to_string(::getpid()));
  fs::create_directories(dir);
  const std::string own = "new.gguf." + std::to_string(::getpid()) + ".part";  // a process number comes again
  for (const std::string& name : {own, std::string("new.gguf.12.part"), std::string("new.gguf.34.part"),
                                  std::string("other.gguf.12.part"), std::string("new.gguf.mine.part")})
    write_file(dir / name, "half");
  const int writer = ::open((dir / "new.gguf.34.part").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(writer, LOCK_EX | LOCK_NB), 0);
  GgufValues values;
  values.copy(*files.gguf);
  write_gguf({dir / "new.gguf"}, values, *files.checkpoint, {});
  EXPECT_TRUE(fs::exists(dir / "new.gguf"));
  EXPECT_FALSE(fs::exists(dir / own));
  EXPECT_FALSE(fs::exists(dir / "new.gguf.12.part"));
  for (const char* name : {"new.gguf.34.part", "other.gguf.12.part", "new.gguf.mine.part"})
    EXPECT_TRUE(fs::exists(dir / name)) << name;
  ::close(writer);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace ingot
