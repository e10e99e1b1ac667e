#include "hub/model_name.h"

#include <gtest/gtest.h>

namespace ingot::hub {
namespace {

TEST(ModelName, Parts) {
  const auto plain = parse_model_name("Qwen/Qwen2-0.5B-Instruct");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repo, "Qwen/Qwen2-0.5B-Instruct");
  EXPECT_EQ(plain->revision, "main");
  EXPECT_EQ(plain->variant, "");
  for (const char* text : {"a/b@refs/pr/1:Q4_K_M", "a/b:Q4_K_M@refs/pr/1"}) {
    const auto both = parse_model_name(text);
    ASSERT_TRUE(both) << text;
    EXPECT_EQ(both->repo, "a/b");
    EXPECT_EQ(both->revision, "refs/pr/1");
    EXPECT_EQ(both->variant, "Q4_K_M");
    EXPECT_EQ(both->text(), "a/b@refs/pr/1:Q4_K_M");
  }
  EXPECT_EQ(parse_model_name("a/b:dir/x.gguf")->variant, "dir/x.gguf");
}

TEST(ModelName, PathsThatStayInTheirFolder) {
  for (const char* path : {"a", "a/b.gguf", "a~b/..c", " ~"}) EXPECT_TRUE(is_safe_relative_path(path)) << path;
  for (const char* path : {"", "/a", "a/", "a//b", ".", "a/../b", "a\\b", "a\x7f", "a\n"})
    EXPECT_FALSE(is_safe_relative_path(path)) << path;
  EXPECT_FALSE(is_safe_relative_path(std::string(1 << 20, 'a')));
}

TEST(ModelName, PathsAndNonsenseAreNoNames) {
  for (const char* text : {"",
                           "gpt2",
                           "/a/b",
                           "./a/b",
                           "../b",
                           "~/b",
                           "a/b/c",
                           "a/",
                           "/b",
                           "a/b.gguf",
                           "a/model.safetensors",
                           "a--b/c",
                           "a/b..c",
                           "-a/b",
                           "a/b.",
                           "a b/c",
                           "a/b@",
                           "a/b:",
                           "a/b@../x",
                           "a/b@/x",
                           "a/b:../x",
                           "a/b@x@y",
                           "a/b:x:y",
                           "a/b@x\ny",
                           "a/b@x\x7f",
                           "a\\b/c"})
    EXPECT_FALSE(parse_model_name(text)) << text;
  EXPECT_FALSE(parse_model_name("a/" + std::string(95, 'b')));
  EXPECT_TRUE(parse_model_name("a/" + std::string(94, 'b')));
}

TEST(ModelName, Commits) {
  EXPECT_TRUE(is_commit(std::string(40, 'a')));
  EXPECT_FALSE(is_commit(std::string(39, 'a')));
  EXPECT_FALSE(is_commit(std::string(40, 'g')));
}

}  // namespace
}  // namespace ingot::hub
