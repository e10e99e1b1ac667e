#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/gguf_writer.h"
#include "formats/test_files.h"

namespace ingot {
namespace {

std::string file_of(const std::string& header, size_t data = 0, char fill = 'x') {
  return GgufWriter::raw<uint64_t>(header.size()) + header + std::string(data, fill);
}

const std::string kGood =
    R"({"__metadata__": {"format": "pt"},
        "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [8, 20]},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "ids": {"dtype": "I64", "shape": [1], "data_offsets": [20, 28]}})";

TEST(Safetensors, ReadsASingleFile) {
  const auto file = SafetensorsCheckpoint::open_bytes(as_bytes(file_of(kGood, 28)));
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");  // in the order of their bytes
  const TensorView& b = file->get("b");
  EXPECT_EQ(b.dtype, DType::bf16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.data.size(), 12u);
  EXPECT_EQ(file->find("c"), nullptr);
  expect_error(ErrorKind::bad_file, "tensor c is missing", [&] { file->get("c"); });
}

TEST(Safetensors, IntegerTensorsOnlyMatterWhenAskedFor) {
  const auto file = SafetensorsCheckpoint::open_bytes(as_bytes(file_of(kGood, 28)));
  ASSERT_EQ(file->unsupported().size(), 1u);
  EXPECT_EQ(file->unsupported()[0].dtype, "I64");
  expect_error(ErrorKind::declined, "tensor ids has type I64", [&] { file->get("ids"); });
  expect_error(ErrorKind::declined, "supported are F32, F16 and BF16", [&] { file->find("ids"); });
}

TEST(Safetensors, ScalarsAndEmptyTensors) {
  const auto file =
      SafetensorsCheckpoint::open_bytes(as_bytes(file_of(R"({"s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
                           "e": {"dtype": "F16", "shape": [0, 7], "data_offsets": [4, 4]}})",
                                                         4)));
  EXPECT_EQ(file->get("s").elements(), 1);
  EXPECT_EQ(file->get("e").elements(), 0);
}

struct HostileSafetensors {
  std::string what;
  std::string bytes;
  std::string error;
};

std::string one(const std::string& entry, size_t data) { return file_of("{\"w\": " + entry + "}", data); }

std::vector<HostileSafetensors> hostile_safetensors_files() {
  const std::string two = R"("b": {"dtype": "F32", "shape": [1], "data_offsets": )";
  const std::string a = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, )";
  return {
      {"empty", "", "the file is empty"},
      {"seven bytes", "1234567", "7 bytes are too few"},
      {"header past the end", GgufWriter::raw<uint64_t>(100) + "{}", "header of 100 bytes runs past the end"},
      {"header of 2^64-1 bytes", GgufWriter::raw<uint64_t>(~0ull) + "{}", "over the limit"},
      {"a GGUF file", GgufWriter().build(), "this is not a safetensors file"},
      {"header not JSON", file_of("{nope"), "header: is not valid JSON"},
      {"header empty", file_of(""), "header: is not valid JSON"},
      {"header a list", file_of("[]"), "header must be a JSON object, got array"},
      {"nested too deep", file_of(std::string(5000, '[')), "nested deeper than 8 levels"},
      {"invalid UTF-8", file_of("{\"\xff\": 1}"), "header: is not valid JSON"},
      {"duplicate names", file_of(a + R"("a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}})", 12),
       "has the key a twice"},
      {"duplicate fields", one(R"({"dtype": "F32", "dtype": "F16", "shape": [1], "data_offsets": [0, 4]})", 4),
       "has the key dtype twice"},
      {"entry not an object", one("5", 4), "tensor w: its entry must be an object"},
      {"no dtype", one(R"({"shape": [1], "data_offsets": [0, 4]})", 4), "w.dtype is missing"},
      {"dtype a number", one(R"({"dtype": 4, "shape": [1], "data_offsets": [0, 4]})", 4), "w.dtype must be a string"},
      {"no shape", one(R"({"dtype": "F32", "data_offsets": [0, 4]})", 4), "tensor w: shape must be a list"},
      {"shape a number", one(R"({"dtype": "F32", "shape": 1, "data_offsets": [0, 4]})", 4), "shape must be a list"},
      {"shape with a string", one(R"({"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]})", 4), "w.shape must be"},
      {"negative dimension", one(R"({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]})", 4), "a dimension is -1"},
      {"nine dimensions", one(R"({"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]})", 4),
       "has 9 dimensions"},
      {"shape overflow", one(R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]})", 4),
       "tensor w: its dimensions overflow"},
      {"bytes overflow", one(R"({"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 4]})", 4),
       "tensor w: its shape needs 4611686018427387904 elements"},
      {"shape too large", one(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]})", 4),
       "its shape needs 2 elements of F32 but its data has 4 bytes"},
      {"integer shape too large", one(R"({"dtype": "I64", "shape": [2], "data_offsets": [0, 8]})", 8), "needs 2 elem"},
      {"no offsets", one(R"({"dtype": "F32", "shape": [1]})", 4), "data_offsets must be two integers"},
      {"one offset", one(R"({"dtype": "F32", "shape": [1], "data_offsets": [0]})", 4), "must be two integers"},
      {"offsets reversed", one(R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]})", 4), "are not a range"},
      {"offsets negative", one(R"({"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]})", 4), "are not a range"},
      {"offsets past the end", one(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})", 4),
       "tensor w: data_offsets [0, 8] run past the end of the file (4 bytes of data)"},
      {"offsets at 2^62", one(R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4611686018427387904]})", 4),
       "run past the end"},
      {"offset over int64", one(R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 18446744073709551615]})", 4),
       "w.data_offsets must be"},
      {"overlap", file_of(a + two + "[4, 8]}}", 8), "tensor b: its bytes overlap"},
      {"hole", file_of(a + two + "[12, 16]}}", 16), "tensor b: 4 bytes before it belong to no tensor"},
      {"trailing bytes", file_of(a + two + "[8, 12]}}", 20), "the last 8 bytes belong to no tensor"},
      {"data but no tensors", file_of("{}", 20), "the last 20 bytes belong to no tensor"},
  };
}

class SafetensorsHostile : public testing::TestWithParam<HostileSafetensors> {};

TEST_P(SafetensorsHostile, IsRefusedClearly) {
  const HostileSafetensors& hostile = GetParam();
  expect_error(ErrorKind::bad_file, hostile.error, [&] { SafetensorsCheckpoint::open_bytes(as_bytes(hostile.bytes)); });
  expect_error(ErrorKind::bad_file, "memory.safetensors",
               [&] { SafetensorsCheckpoint::open_bytes(as_bytes(hostile.bytes)); });
}

std::string safetensors_test_name(const testing::TestParamInfo<HostileSafetensors>& info) {
  std::string name;
  for (char c : info.param.what) name.push_back(std::isalnum(static_cast<unsigned char>(c)) ? c : '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Files, SafetensorsHostile, testing::ValuesIn(hostile_safetensors_files()),
                         safetensors_test_name);

TEST(SafetensorsDamaged, TruncatedOrMutatedNeverCrashes) {
  const std::string whole = file_of(kGood, 28);
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(SafetensorsCheckpoint::open_bytes(as_bytes(std::string_view(whole).substr(0, n))), Error) << n;
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 1 + round % 3; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      SafetensorsCheckpoint::open_bytes(as_bytes(damaged));
    } catch (const Error&) {
      // refusing is fine
    }
  }
}

// ---- folders and shards ---------------------------------------------------------------------------------------------

class SafetensorsFolder : public testing::Test {
 protected:
  static std::string shard(const std::string& name) {
    return one_named(name, R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})");
  }
  static std::string one_named(const std::string& name, const std::string& entry) {
    return file_of("{\"" + name + "\": " + entry + "}", 4);
  }
  void write(const std::string& name, const std::string& bytes) { write_file(dir_ / name, bytes); }
  void write_index(const std::string& weight_map) {
    write("model.safetensors.index.json", R"({"metadata": {"total_size": 8}, "weight_map": )" + weight_map + "}");
  }
  void write_shards() {
    write("s1.safetensors", shard("a"));
    write("s2.safetensors", shard("b"));
    write_index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})");
  }
  auto opening() {
    return [this] { SafetensorsCheckpoint::open(dir_.path()); };
  }
  TempDir dir_;
};

TEST_F(SafetensorsFolder, OpensWhatItFinds) {
  write("odd-name.safetensors", shard("x"));
  EXPECT_NE(SafetensorsCheckpoint::open(dir_.path())->find("x"), nullptr);
  write_shards();
  const auto sharded = SafetensorsCheckpoint::open(dir_.path());
  EXPECT_EQ(sharded->tensors().size(), 2u);
  EXPECT_NE(sharded->find("b"), nullptr);
  EXPECT_GT(sharded->file_bytes(), 100u);
  write("model.safetensors", shard("m"));
  EXPECT_NE(SafetensorsCheckpoint::open(dir_.path())->find("m"), nullptr);
  EXPECT_NE(SafetensorsCheckpoint::open(dir_ / "s1.safetensors")->find("a"), nullptr);
}

TEST_F(SafetensorsFolder, SaysWhatIsWrong) {
  const auto bad = ErrorKind::bad_file;
  expect_error(ErrorKind::io, "has no model.safetensors", opening());
  write_shards();
  write_index("{}");
  expect_error(bad, "weight_map is empty", opening());
  write_index("[]");
  expect_error(bad, "weight_map must be an object, got array", opening());
  write_index(R"({"a": 5})");
  expect_error(bad, "weight_map.a must be the name of a file", opening());
  for (const char* path : {"../s1.safetensors", "/etc/passwd", "", "..", "x\\\\y"}) {
    write_index(R"({"a": ")" + std::string(path) + R"("})");
    expect_error(bad, "weight_map.a must be the name of a file in the same folder", opening());
  }
  write_index(R"({"a": "s1.safetensors", "b": "s3.safetensors"})");
  expect_error(ErrorKind::io, "shard s3.safetensors is missing; download the whole model", opening());
  write_index(R"({"a": "s1.safetensors", "b": "s2.safetensors", "c": "s2.safetensors"})");
  expect_error(bad, "tensor c is listed for shard s2.safetensors but is not in it", opening());
  write_index(R"({"c": "s1.safetensors", "b": "s2.safetensors"})");
  expect_error(bad, "s1.safetensors: tensor a is not listed for this shard", opening());
  write_index(R"({"a": "s2.safetensors", "b": "s1.safetensors"})");
  expect_error(bad, "is not listed for this shard", opening());
  std::filesystem::remove(dir_ / "model.safetensors.index.json");
  expect_error(bad, "has 2 .safetensors files but no model.safetensors.index.json", opening());
}

}  // namespace
}  // namespace ingot
