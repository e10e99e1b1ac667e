#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cpu_time.h"
#include "formats/gguf_writer.h"
#include "formats/test_files.h"

namespace ingot {
namespace {

using W = GgufWriter;

std::shared_ptr<GgufFile> open(const GgufWriter& writer) { return GgufFile::open_bytes(as_bytes(writer.build())); }

class GgufVersion : public testing::TestWithParam<uint32_t> {};

TEST_P(GgufVersion, EveryValueTypeIsRead) {
  W w;
  w.version = GetParam();
  w.value("u8", W::kU8, W::raw<uint8_t>(200)).value("i8", W::kI8, W::raw<int8_t>(-3));
  w.value("u16", W::kU16, W::raw<uint16_t>(60000)).value("i16", W::kI16, W::raw<int16_t>(-300));
  w.value("u32", W::kU32, W::raw<uint32_t>(4000000000u)).value("i32", W::kI32, W::raw<int32_t>(-70000));
  w.value("u64", W::kU64, W::raw<uint64_t>(1ull << 40)).value("i64", W::kI64, W::raw<int64_t>(-(1ll << 40)));
  w.value_f32("f32", 0.5f).value("f64", W::kF64, W::raw<double>(0.1)).value_bool("yes", true).value_bool("no", false);
  w.value_string("text", "héllo").value_strings("list", {"a", "", "ccc"});
  w.value_array<int32_t>("ints", W::kI32, {1, -2, 3}).value_array<float>("floats", W::kF32, {0.25f, 4.0f});
  w.value_array<uint8_t>("bools", W::kBool, {1, 0}).value_array<int64_t>("none", W::kI64, {});
  const auto file = open(w);
  EXPECT_EQ(file->version(), GetParam());
  EXPECT_EQ(file->get_int("u8"), 200);
  EXPECT_EQ(file->get_int("i8"), -3);
  EXPECT_EQ(file->get_int("u16"), 60000);
  EXPECT_EQ(file->get_int("i16"), -300);
  EXPECT_EQ(file->get_int("u32"), 4000000000);
  EXPECT_EQ(file->get_int("i32"), -70000);
  EXPECT_EQ(file->get_int("u64"), int64_t{1} << 40);
  EXPECT_EQ(file->get_int("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(file->get_double("f32"), 0.5);
  EXPECT_EQ(file->get_double("f64"), 0.1);
  EXPECT_EQ(file->get_double("i8"), -3.0);
  EXPECT_EQ(file->get_bool("yes"), true);
  EXPECT_EQ(file->get_bool("no"), false);
  EXPECT_EQ(file->get_string("text"), "héllo");
  EXPECT_EQ(*file->get_strings("list"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(*file->get_ints("ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(*file->get_ints("bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_TRUE(file->get_ints("none")->empty());
  EXPECT_EQ(*file->get_doubles("floats"), (std::vector<double>{0.25, 4.0}));
  EXPECT_EQ(file->values().size(), 18u);
}

INSTANTIATE_TEST_SUITE_P(Versions, GgufVersion, testing::Values(2, 3));

TEST(Gguf, AbsentAndMistypedKeys) {
  const auto file = open(W().value_u32("n", 1).value_string("s", "x"));
  EXPECT_EQ(file->find_value("absent"), nullptr);
  EXPECT_EQ(file->get_int("absent"), std::nullopt);
  EXPECT_EQ(file->get_strings("absent"), nullptr);
  const auto bad = ErrorKind::bad_file;
  expect_error(bad, "key s must be an integer, it is a string", [&] { file->get_int("s"); });
  expect_error(bad, "key s must be a number, it is a string", [&] { file->get_double("s"); });
  expect_error(bad, "key n must be a string, it is an integer", [&] { file->get_string("n"); });
  expect_error(bad, "key n must be a truth value", [&] { file->get_bool("n"); });
  expect_error(bad, "key n must be an array of strings", [&] { file->get_strings("n"); });
}

TEST(Gguf, TensorsHaveTheirShapeOutermostFirstAndTheirBytes) {
  W w;
  w.tensor_f32("norm", {3}, {1, 2, 3});
  w.tensor("matrix", {64, 2}, 2, std::string(2 * 2 * 18, 'q'));  // Q4_0: 2 rows of 2 blocks
  const auto file = open(w);
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorView& norm = file->get("norm");
  EXPECT_EQ(norm.shape, std::vector<int64_t>{3});
  float second;
  std::memcpy(&second, norm.data.data() + 4, 4);
  EXPECT_EQ(second, 2.0f);
  const TensorView& matrix = file->get("matrix");
  EXPECT_EQ(matrix.dtype, DType::q4_0);
  EXPECT_EQ(matrix.shape, (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(matrix.data.size(), 72u);
  EXPECT_EQ(static_cast<char>(matrix.data[0]), 'q');
  EXPECT_EQ(file->find("other"), nullptr);
  expect_error(ErrorKind::bad_file, "tensor other is missing", [&] { file->get("other"); });
  EXPECT_EQ(file->file_bytes(), w.build().size());
}

TEST(Gguf, AlignmentIsHonoured) {
  W w;
  w.alignment = 256;
  w.value_u32("general.alignment", 256).tensor_f32("a", {1}, {1}).tensor_f32("b", {1}, {2});
  const auto file = open(w);
  EXPECT_EQ(file->get("b").data.data() - file->get("a").data.data(), 256);
  float value;
  std::memcpy(&value, file->get("b").data.data(), 4);
  EXPECT_EQ(value, 2.0f);
}

TEST(Gguf, GapsBetweenTensorsAreAllowed) {
  const auto file = open(W().entry("a", {1}, 0, 64).data(std::string(68, 'x')));
  EXPECT_EQ(file->get("a").data.size(), 4u);
}

TEST(Gguf, LargeVocabulariesParseQuickly) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 300'000; ++i) tokens.push_back("token" + std::to_string(i));
  const std::string bytes = W().value_strings("tokenizer.ggml.tokens", tokens).build();
  const double start = test::thread_cpu_s();
  const auto file = GgufFile::open_bytes(as_bytes(bytes));
  const double taken = test::thread_cpu_s() - start;
  EXPECT_EQ(file->get_strings("tokenizer.ggml.tokens")->at(299'999), "token299999");
  EXPECT_LT(taken, 1.0);  // about 10 ms
}

// ---- split files ----------------------------------------------------------------------------------------------------

class GgufSplit : public testing::Test {
 protected:
  static W part(int number, int count, int tensors) {
    W w;
    w.value("split.no", W::kU16, W::raw<uint16_t>(static_cast<uint16_t>(number)));
    w.value("split.count", W::kU16, W::raw<uint16_t>(static_cast<uint16_t>(count)));
    w.value("split.tensors.count", W::kI32, W::raw<int32_t>(tensors));
    return w;
  }
  void write(const std::string& name, const W& w) { write_file(dir_ / name, w.build()); }
  void write_good() {
    write("m-00001-of-00003.gguf", part(0, 3, 3).value_string("general.name", "m").tensor_f32("a", {1}, {1}));
    write("m-00002-of-00003.gguf", part(1, 3, 3).tensor_f32("b", {1}, {2}));
    write("m-00003-of-00003.gguf", part(2, 3, 3).tensor_f32("c", {1}, {3}));
  }
  auto opening(const std::string& name) {
    return [this, name] { GgufFile::open(dir_ / name); };
  }
  TempDir dir_;
};

TEST_F(GgufSplit, OpeningTheFirstOpensAll) {
  write_good();
  const auto file = GgufFile::open(dir_ / "m-00001-of-00003.gguf");
  EXPECT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->get_string("general.name"), "m");
  float value;
  std::memcpy(&value, file->get("c").data.data(), 4);
  EXPECT_EQ(value, 3.0f);
  file->drop_pages(file->get("c").data);
}

TEST_F(GgufSplit, SaysWhatIsWrongWithASet) {
  write_good();
  expect_error(ErrorKind::bad_call, "is part 2 of 3 of a split model; open m-00001-of-00003.gguf",
               opening("m-00002-of-00003.gguf"));
  std::filesystem::copy(dir_ / "m-00001-of-00003.gguf", dir_ / "renamed.gguf");
  expect_error(ErrorKind::bad_file, "must be named like name-00001-of-00003.gguf", opening("renamed.gguf"));
  write("m-00002-of-00003.gguf", part(2, 3, 3).tensor_f32("b", {1}, {2}));
  expect_error(ErrorKind::bad_file, "m-00002-of-00003.gguf: keys split.no = 2", opening("m-00001-of-00003.gguf"));
  write("m-00002-of-00003.gguf", part(1, 3, 3).tensor_f32("a", {1}, {2}));
  expect_error(ErrorKind::bad_file, "tensor a is in two files", opening("m-00001-of-00003.gguf"));
  write("m-00002-of-00003.gguf", part(1, 3, 3).tensor_f32("b", {1}, {2}).tensor_f32("d", {1}, {2}));
  expect_error(ErrorKind::bad_file, "split.tensors.count says 3 tensors but the 3 files have 4",
               opening("m-00001-of-00003.gguf"));
  std::filesystem::remove(dir_ / "m-00002-of-00003.gguf");
  expect_error(ErrorKind::io, "m-00002-of-00003.gguf: no such file", opening("m-00001-of-00003.gguf"));
}

TEST_F(GgufSplit, ASetOfOneNeedsNoSpecialName) {
  write("whole.gguf", part(0, 1, 1).tensor_f32("a", {1}, {1}));
  EXPECT_EQ(GgufFile::open(dir_ / "whole.gguf")->tensors().size(), 1u);
}

}  // namespace
}  // namespace ingot
