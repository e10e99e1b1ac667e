#include "formats/model_location.h"

#include <gtest/gtest.h>

#include "formats/test_files.h"

namespace ingot {
namespace {

TEST(ModelLocation, OfASplitModelTheFirstFileCounts) {
  const TempDir dir;
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) write_file(dir.path() / name, "");
  EXPECT_EQ(find_model(dir.path().string()).gguf, dir.path() / "m-00001-of-00002.gguf");
}

TEST(ModelLocation, ASplitModelNeedsNoNameInFront) {
  const TempDir dir;
  for (const char* name : {"-00001-of-00002.gguf", "-00002-of-00002.gguf"}) write_file(dir.path() / name, "");
  EXPECT_EQ(find_model(dir.path().string()).gguf, dir.path() / "-00001-of-00002.gguf");
}

TEST(ModelLocation, OneOfSeveralModelsMustBeNamed) {
  const TempDir dir;
  for (const char* name : {"a-of-b.gguf", "m.gguf"}) write_file(dir.path() / name, "");
  expect_error(ErrorKind::bad_call, "has 2 .gguf models (a-of-b.gguf, m.gguf, ...); name one of them",
               [&] { find_model(dir.path().string()); });
  EXPECT_EQ(find_model((dir.path() / "m.gguf").string()).gguf, dir.path() / "m.gguf");
}

}  // namespace
}  // namespace ingot
