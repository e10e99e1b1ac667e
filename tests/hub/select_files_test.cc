#include "hub/select_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_files.h"

namespace ingot::hub {
namespace {

using ::testing::ElementsAre;
using Files = std::vector<std::string>;

ModelName named(const char* text) { return parse_model_name(text).value(); }

TEST(SelectFiles, SafetensorsWithWhatTheEngineReads) {
  const Files files = {".gitattributes",
                       "README.md",
                       "model-00002-of-00002.safetensors",
                       "config.json",
                       "LICENSE",
                       "model-00001-of-00002.safetensors",
                       "model.safetensors.index.json",
                       "tokenizer.json",
                       "tokenizer_config.json",
                       "tekken.json",
                       "consolidated.safetensors",
                       "pytorch_model.bin",
                       "onnx/model.safetensors",
                       "original/config.json"};
  const FileSelection selection = select_files(named("a/b"), files);
  EXPECT_EQ(selection.gguf, "");
  EXPECT_THAT(selection.files,
              ElementsAre("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json",
                          "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
}

TEST(SelectFiles, OneFileWinsOverShards) {
  const FileSelection selection = select_files(
      named("a/b"), {"config.json", "model-00001-of-00001.safetensors", "model.safetensors", "tekken.json"});
  EXPECT_THAT(selection.files, ElementsAre("config.json", "tekken.json", "model.safetensors"));
}

TEST(SelectFiles, ShardsWithOtherNames) {
  const Files files = {"config.json", "model.safetensors.index.json", "part-1-of-2.safetensors",
                       "part-2-of-2.safetensors"};
  EXPECT_THAT(
      select_files(named("a/b"), files).files,
      ElementsAre("config.json", "model.safetensors.index.json", "part-1-of-2.safetensors", "part-2-of-2.safetensors"));
  EXPECT_THAT(select_files(named("a/b"), {"config.json", "gptq-4bit.safetensors"}).files,
              ElementsAre("config.json", "gptq-4bit.safetensors"));
  expect_error(ErrorKind::declined, "2 .safetensors files but no model.safetensors.index.json",
               [] { select_files(named("a/b"), {"config.json", "x.safetensors", "y.safetensors"}); });
}

TEST(SelectFiles, NamedChatTemplates) {
  const Files files = {"config.json",
                       "model.safetensors",
                       "chat_template.jinja",
                       "additional_chat_templates/rag.jinja",
                       "additional_chat_templates/x/y.jinja",
                       "other/z.jinja"};
  EXPECT_THAT(
      select_files(named("a/b"), files).files,
      ElementsAre("config.json", "chat_template.jinja", "additional_chat_templates/rag.jinja", "model.safetensors"));
}

const Files kGguf = {"README.md",   "config.json",    "mmproj-x-F16.gguf",          "x.Q4_K_M.gguf",
                     "x-Q8_0.gguf", "x-UD-Q8_0.gguf", "BF16/x-00001-of-00002.gguf", "BF16/x-00002-of-00002.gguf"};

TEST(SelectFiles, GgufByTagOrName) {
  EXPECT_EQ(select_files(named("a/b:Q4_K_M"), kGguf).gguf, "x.Q4_K_M.gguf");
  EXPECT_EQ(select_files(named("a/b:q8_0"), kGguf).gguf, "x-Q8_0.gguf");
  EXPECT_EQ(select_files(named("a/b:UD-Q8_0"), kGguf).gguf, "x-UD-Q8_0.gguf");
  EXPECT_EQ(select_files(named("a/b:x-Q8_0.gguf"), kGguf).gguf, "x-Q8_0.gguf");
  const FileSelection split = select_files(named("a/b:BF16"), kGguf);
  EXPECT_EQ(split.gguf, "BF16/x-00001-of-00002.gguf");
  EXPECT_THAT(split.files, ElementsAre("BF16/x-00002-of-00002.gguf", "BF16/x-00001-of-00002.gguf"));
}

TEST(SelectFiles, SaysWhatThereIs) {
  expect_error(ErrorKind::bad_call, "Q4_K_M", [] { select_files(named("a/b"), kGguf); });
  expect_error(ErrorKind::bad_call, "no such GGUF; there are: BF16", [] { select_files(named("a/b:Q2_K"), kGguf); });
  expect_error(ErrorKind::bad_call, "fits 2 files",
               [] { select_files(named("a/b:Q8_0"), {"x-Q8_0.gguf", "y-Q8_0.gguf"}); });
  expect_error(ErrorKind::bad_call, "leave :Q8_0 out",
               [] { select_files(named("a/b:Q8_0"), {"config.json", "model.safetensors"}); });
  expect_error(ErrorKind::declined, "pickles", [] { select_files(named("a/b"), {"config.json", "x.bin"}); });
  expect_error(ErrorKind::declined, "no config.json", [] { select_files(named("a/b"), {"x.safetensors"}); });
  expect_error(ErrorKind::bad_file, "00002-of-00002", [] { select_files(named("a/b"), {"x-00001-of-00002.gguf"}); });
}

TEST(SelectFiles, Variants) {
  EXPECT_EQ(variant_of("x-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(variant_of("x.IQ4_XS.gguf"), "IQ4_XS");
  EXPECT_EQ(variant_of("F16/x-F16-00001-of-00002.gguf"), "F16");
  EXPECT_EQ(variant_of("model.gguf"), "model.gguf");
}

}  // namespace
}  // namespace ingot::hub
