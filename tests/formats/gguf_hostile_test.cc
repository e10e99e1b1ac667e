// Files that lie: each must be refused with one clear line, whatever its bytes.
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/test_files.h"

namespace ingot {
namespace {

using W = GgufWriter;
constexpr uint64_t kHuge = uint64_t{1} << 60;
constexpr uint64_t kTop = uint64_t{1} << 63;

struct HostileGguf {
  std::string what;
  std::string bytes;
  std::string error;  // part of the message
  ErrorKind kind = ErrorKind::bad_file;
};

W with_version(uint32_t version) {
  W w;
  w.version = version;
  return w;
}
W with_magic(std::string magic) {
  W w;
  w.magic = std::move(magic);
  return w;
}
W with_extra(uint64_t values, uint64_t tensors) {
  W w;
  w.extra_values = values;
  w.extra_tensors = tensors;
  return w;
}
std::string array(uint32_t type, uint64_t count, std::string payload = "") {
  return W::raw(type) + W::raw(count) + payload;
}
W one_tensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data = 64) {
  return W().entry("blk.0.attn_q.weight", dims, type, offset).data(std::string(data, 'x'));
}

std::vector<HostileGguf> hostile_gguf_files() {
  const std::string whole = W().value_string("general.name", "x").tensor_f32("t", {4}, {1, 2, 3, 4}).build();
  return {
      {"empty", "", "the file is empty"},
      {"one byte", "G", "header: needs 4 bytes at byte 0 but the file ends at byte 1"},
      {"wrong magic", with_magic("GGML").build(), "does not start with GGUF"},
      {"a pickle", "PK\x03\x04 something else entirely", "does not start with GGUF"},
      {"swapped magic", with_magic("FUGG").build(), "big-endian"},
      {"big-endian version", with_version(0x03000000).build(), "big-endian"},
      {"version 0", with_version(0).build(), "version 0 is not read"},
      {"version 1", with_version(1).build(), "version 1 is not read, only versions 2 and 3"},
      {"version 4", with_version(4).build(), "version 4 is not read"},
      {"header cut in the counts", whole.substr(0, 12), "header: needs 8 bytes"},
      {"2^60 values", with_extra(kHuge, 0).build(), "claims 1152921504606846976 metadata values"},
      {"2^60 tensors", with_extra(0, kHuge).build(), "claims 1152921504606846976 tensors"},
      {"2^64-1 values", with_extra(~uint64_t{0}, 0).build(), "metadata values, more than a file"},
      {"a few values too many", with_extra(1, 0).build(), "more than a file of 24 bytes can hold"},
      {"key longer than allowed", W().value(std::string(70000, 'k'), W::kU8, "x").build(), "70000 bytes is longer"},
      {"key longer than the file", whole.substr(0, 24) + W::raw<uint64_t>(5000) + std::string(40, 'x'),
       "key number 0: needs 5000 bytes"},
      {"empty key", W().value_u32("", 1).build(), "key number 0: has an empty name"},
      {"duplicate key", W().value_u32("llama.block_count", 1).value_u32("llama.block_count", 2).build(),
       "key llama.block_count: appears twice"},
      {"unknown value type", W().value("k", 13, std::string(16, 'x')).build(), "key k: has the unknown value type 13"},
      {"bool of 2", W().value("k", W::kBool, "\x02").build(), "key k: a truth value must be 0 or 1, got 2"},
      {"uint64 over int64", W().value("k", W::kU64, W::raw(kTop)).build(), "key k: the value 9223372036854775808"},
      {"string of 2^63 bytes", W().value("k", W::kString, W::raw(kTop)).build(), "key k: needs 9223372036854775808"},
      {"string of 2^64-1 bytes", W().value("k", W::kString, W::raw(~uint64_t{0})).build(), "key k: needs 18446744"},
      {"array of arrays", W().value("k", W::kArray, array(W::kArray, 1, array(W::kU8, 1, "x"))).build(),
       "key k: is an array of arrays"},
      {"array of unknown", W().value("k", W::kArray, array(77, 1, "x")).build(), "array of the unknown value type 77"},
      {"array of 2^60 bytes", W().value("k", W::kArray, array(W::kU8, kHuge, "x")).build(), "key k: claims 11529"},
      {"array of 2^61 words", W().value("k", W::kArray, array(W::kU64, uint64_t{1} << 61, "x")).build(),
       "key k: claims 2305843009213693952 elements"},
      {"array of 2^60 strings", W().value("k", W::kArray, array(W::kString, kHuge, "x")).build(), "key k: claims"},
      {"string array cut short", W().value("k", W::kArray, array(W::kString, 2, W::text("abcdefgh"))).build(),
       "key k: needs 8 bytes"},
      {"bool array with 3", W().value("k", W::kArray, array(W::kBool, 1, "\x03")).build(), "must be 0 or 1, got 3"},
      {"alignment 0", W().value_u32("general.alignment", 0).build(), "general.alignment: must be a power of two"},
      {"alignment 48", W().value_u32("general.alignment", 48).build(), "general.alignment: must be a power of two"},
      {"alignment 2^31", W().value_u32("general.alignment", 1u << 31).build(), "general.alignment"},
      {"alignment a string", W().value_string("general.alignment", "32").build(), "general.alignment: must be an int"},
      {"no dimensions", one_tensor({}, 0, 0).build(), "blk.0.attn_q.weight: has 0 dimensions"},
      {"5 dimensions", one_tensor({1, 1, 1, 1, 1}, 0, 0).build(), "blk.0.attn_q.weight: has 5 dimensions"},
      {"a dimension of 0", one_tensor({4, 0}, 0, 0).build(), "blk.0.attn_q.weight: dimension 1 is 0"},
      {"dimensions overflow", one_tensor({uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0).build(), "dimensions overflow"},
      {"dimension over int64", one_tensor({kTop}, 0, 0).build(), "dimensions overflow"},
      {"wraps to a small product", one_tensor({uint64_t{1} << 32, uint64_t{1} << 32, 4}, 0, 0).build(),
       "dimensions overflow"},
      {"bytes overflow", one_tensor({uint64_t{1} << 62}, 0, 0).build(), "cannot fit in a file"},
      {"rows not whole blocks", one_tensor({33, 2}, 2, 0).build(), "rows of 33 elements are not whole q4_0 blocks"},
      {"rows not whole K blocks", one_tensor({32, 8}, 12, 0).build(), "rows of 32 elements are not whole q4_k"},
      {"unknown tensor type", one_tensor({32}, 99, 0).build(), "blk.0.attn_q.weight: has the unknown type number 99"},
      {"removed type Q4_2", one_tensor({32}, 4, 0).build(), "unknown type number 4"},
      {"IQ4_XS", one_tensor({256}, 23, 0).build(),
       "tensor blk.0.attn_q.weight has type IQ4_XS, which is not supported; supported are F32, F16, BF16, Q4_0",
       ErrorKind::declined},
      {"MXFP4", one_tensor({32}, 39, 0).build(), "has type MXFP4", ErrorKind::declined},
      {"an I32 tensor", one_tensor({4}, 26, 0).build(), "has type I32", ErrorKind::declined},
      {"offset past the end", one_tensor({4}, 0, 64, 64).build(), "16 bytes at offset 64 run past the end"},
      {"offset far past the end", one_tensor({4}, 0, uint64_t{1} << 40).build(), "run past the end of the file"},
      {"offset near 2^64", one_tensor({4}, 0, ~uint64_t{31}).build(), "run past the end of the file"},
      {"unaligned offset", one_tensor({4}, 0, 4).build(), "offset 4 is not a multiple of the alignment 32"},
      {"last bytes missing", whole.substr(0, whole.size() - 1), "tensor t: its 16 bytes at offset 0 run past the end"},
      {"no data at all", W().entry("t", {4}, 0, 0).build(), "tensor t: its 16 bytes at offset 0 run past the end"},
      {"duplicate tensor", W().tensor_f32("t", {1}, {1}).tensor_f32("t", {1}, {1}).build(), "tensor t: appears twice"},
      {"overlapping tensors", W().entry("a", {16}, 0, 0).entry("b", {4}, 0, 32).data(std::string(64, 'x')).build(),
       "tensor b: its bytes overlap those of tensor a"},
      {"empty tensor name", W().tensor_f32("", {1}, {1}).build(), "tensor number 0: has an empty name"},
      {"long tensor name", W().tensor_f32(std::string(2000, 'n'), {1}, {1}).build(), "a name of 2000 bytes"},
      {"tensor table cut", W().tensor_f32("t", {4, 4}, {1}).build().substr(0, 40), "more than a file"},
      {"a name with control bytes", W().value("a\n\x1b[31m", 13, std::string(8, 'x')).build(), "key a\\x0a\\x1b[31m"},
      {"a split set in memory", W().value_u32("split.count", 3).build(), "one of several files"},
      {"split.count a string", W().value_string("split.count", "3").build(), "split.count must be a non-negative"},
  };
}

class GgufHostile : public testing::TestWithParam<HostileGguf> {};

TEST_P(GgufHostile, IsRefusedClearly) {
  const HostileGguf& hostile = GetParam();
  expect_error(hostile.kind, hostile.error, [&] { GgufFile::open_bytes(as_bytes(hostile.bytes)); });
  expect_error(hostile.kind, hostile.bytes.empty() ? "memory.gguf" : "memory.gguf: ", [&] {
    GgufFile::open_bytes(as_bytes(hostile.bytes));
  });
}

std::string gguf_test_name(const testing::TestParamInfo<HostileGguf>& info) {
  std::string name;
  for (char c : info.param.what) name.push_back(std::isalnum(static_cast<unsigned char>(c)) ? c : '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Files, GgufHostile, testing::ValuesIn(hostile_gguf_files()), gguf_test_name);

std::string good_file() {
  W w;
  w.value_string("general.architecture", "llama").value_u32("llama.block_count", 2);
  w.value_strings("tokenizer.ggml.tokens", {"a", "b", "c"}).value_array<float>("scores", W::kF32, {1, 2, 3});
  w.tensor_f32("norm", {4}, {1, 2, 3, 4}).tensor("m", {32, 2}, 8, std::string(68, 'q'));
  return w.build();
}

TEST(GgufTruncated, AtEveryByteItIsRefused) {
  const std::string whole = good_file();
  EXPECT_NO_THROW(GgufFile::open_bytes(as_bytes(whole)));
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(GgufFile::open_bytes(as_bytes(std::string_view(whole).substr(0, n))), Error) << n << " bytes";
}

TEST(GgufMutated, RandomDamageNeverCrashes) {
  const std::string whole = good_file();
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 1 + round % 4; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    try {
      const auto file = GgufFile::open_bytes(as_bytes(damaged));
      for (const TensorView& tensor : file->tensors())
        ASSERT_EQ(tensor.data.size(), dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements())));
    } catch (const Error&) {
      // refusing is fine
    }
  }
}

}  // namespace
}  // namespace ingot
