#include "hub/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_files.h"

namespace ingot::hub {
namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, 'c');
const std::string kOther(40, 'd');

class CacheTest : public ::testing::Test {
 protected:
  // A file of the snapshot, as the hub's own library leaves it.
  void add(const std::string& commit, const std::string& file, const std::string& text, char hash) {
    const std::string name(64, hash);
    make_folder(cache_.blob("a/b", name).parent_path());
    write_file(cache_.blob("a/b", name), text);
    cache_.link("a/b", commit, file, name);
  }
  void add_model(const std::string& commit) {
    add(commit, "config.json", "{}", '1');
    add(commit, "tokenizer.json", "{}", '2');
    add(commit, "model.safetensors", "weights", '3');
  }
  static ModelName name(const char* text) { return parse_model_name(text).value(); }

  TempDir folder_;
  Cache cache_{folder_.path()};
};

TEST_F(CacheTest, LayoutOfTheHub) {
  add_model(kCommit);
  cache_.write_ref(name("a/b"), kCommit);
  const fs::path repo = folder_ / "models--a--b";
  EXPECT_EQ(fs::read_symlink(repo / "snapshots" / kCommit / "config.json"), "../../blobs/" + std::string(64, '1'));
  add(kCommit, "sub/x.json", "{}", '4');
  EXPECT_EQ(fs::read_symlink(repo / "snapshots" / kCommit / "sub/x.json"), "../../../blobs/" + std::string(64, '4'));
  EXPECT_EQ(read_file(repo / "refs/main").size(), 40u);
  EXPECT_EQ(cache_.find(name("a/b")), repo / "snapshots" / kCommit);
  EXPECT_EQ(cache_.find(ModelName{.repo = "a/b", .revision = kCommit}), repo / "snapshots" / kCommit);
  EXPECT_FALSE(cache_.find(name("a/b@other")));
  EXPECT_FALSE(cache_.find(name("a/c")));
}

TEST_F(CacheTest, PartsAreNoModel) {
  cache_.write_ref(name("a/b"), kCommit);
  EXPECT_FALSE(cache_.find(name("a/b")));
  add(kCommit, "config.json", "{}", '1');
  add(kCommit, "tokenizer.json", "{}", '2');
  EXPECT_FALSE(cache_.find(name("a/b")));
  add(kCommit, "model-00001-of-00002.safetensors", "x", '3');
  EXPECT_FALSE(cache_.find(name("a/b"))) << "a shard without an index";
  add(kCommit, "model.safetensors.index.json",
      R"({"weight_map": {"x": "model-00001-of-00002.safetensors", "y": "model-00002-of-00002.safetensors"}})", '4');
  EXPECT_FALSE(cache_.find(name("a/b"))) << "a shard is missing";
  add(kCommit, "model-00002-of-00002.safetensors", "y", '5');
  EXPECT_TRUE(cache_.find(name("a/b")));
  fs::remove(cache_.blob("a/b", std::string(64, '5')));
  EXPECT_FALSE(cache_.find(name("a/b"))) << "a link to nothing";
}

TEST_F(CacheTest, Gguf) {
  cache_.write_ref(name("a/b"), kCommit);
  add(kCommit, "x-Q4_K_M.gguf", "four", '4');
  add(kCommit, "x-Q8_0.gguf", "eight", '8');
  EXPECT_EQ(cache_.find(name("a/b:Q8_0"))->filename(), "x-Q8_0.gguf");
  EXPECT_FALSE(cache_.find(name("a/b:Q2_K")));
  EXPECT_FALSE(cache_.find(name("a/b"))) << "which one?";
  const auto entries = cache_.list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "a/b:Q4_K_M");
  EXPECT_EQ(entries[0].bytes, 4u);
  EXPECT_TRUE(entries[0].complete);
  EXPECT_THAT(entries[0].refs, ::testing::ElementsAre("main"));
  EXPECT_EQ(cache_.remove(name("a/b:Q8_0"), false), 5u);
  EXPECT_EQ(cache_.find(name("a/b"))->filename(), "x-Q4_K_M.gguf");
  expect_error(ErrorKind::bad_call, "Q8_0", [&] { cache_.remove(name("a/b:Q8_0"), false); });
}

TEST_F(CacheTest, RemoveKeepsWhatOthersNeed) {
  add_model(kCommit);
  add(kOther, "config.json", "{}", '1');
  add(kOther, "tokenizer.json", "{}", '2');
  add(kOther, "model.safetensors", "newer weights", '6');
  cache_.write_ref(name("a/b@old"), kCommit);
  cache_.write_ref(name("a/b"), kOther);
  EXPECT_EQ(cache_.remove(name("a/b@old"), true), 7u);
  EXPECT_FALSE(cache_.find(name("a/b@old")));
  EXPECT_TRUE(cache_.find(name("a/b")));
  expect_error(ErrorKind::bad_call, "revision", [&] { cache_.remove(name("a/b@old"), true); });
  EXPECT_EQ(cache_.remove(name("a/b"), false), 17u);
  EXPECT_TRUE(cache_.list().empty());
  EXPECT_FALSE(fs::exists(folder_ / "models--a--b"));
  expect_error(ErrorKind::bad_call, "ingot list", [&] { cache_.remove(name("a/b"), false); });
}

TEST_F(CacheTest, RemoveLeavesWhatIsJustComingIn) {
  cache_.write_ref(name("a/b"), kCommit);
  add(kCommit, "x-Q4_0.gguf", "four", '4');
  add(kCommit, "x-Q8_0.gguf", "eight", '8');
  const fs::path unlinked = cache_.blob("a/b", std::string(64, '9'));
  write_file(unlinked, "somebody fetched it and will link it");
  EXPECT_EQ(cache_.remove(name("a/b:Q8_0"), false), 5u);
  EXPECT_TRUE(fs::exists(unlinked));
  EXPECT_FALSE(fs::exists(cache_.blob("a/b", std::string(64, '8'))));
}

// Hugging Face's library may keep the bytes in a store that repositories share, and link the blob there.
TEST_F(CacheTest, SharedBlobsAreNotOurs) {
  const std::string hash(64, '3');
  make_folder(folder_ / "blobs/33");
  write_file(folder_ / "blobs/33" / hash, "weights");
  add(kCommit, "config.json", "{}", '1');
  add(kCommit, "tokenizer.json", "{}", '2');
  fs::create_symlink("../../blobs/33/" + hash, cache_.blob("a/b", hash));
  cache_.link("a/b", kCommit, "model.safetensors", hash);
  cache_.write_ref(name("a/b"), kCommit);
  EXPECT_TRUE(cache_.find(name("a/b")));
  ASSERT_EQ(cache_.list().size(), 1u);
  EXPECT_EQ(cache_.list()[0].bytes, 11u);
  EXPECT_EQ(cache_.remove(name("a/b"), false), 4u);
  EXPECT_TRUE(fs::exists(folder_ / "blobs/33" / hash));
}

TEST_F(CacheTest, ListsWhatIsNoModelYet) {
  make_folder(cache_.repo("a/b") / "snapshots");
  make_folder(cache_.repo("a/b") / "blobs");
  write_file(cache_.blob("a/b", "x.incomplete"), "half");
  const auto entries = cache_.list();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "a/b");
  EXPECT_EQ(entries[0].commit, "");
  EXPECT_EQ(entries[0].bytes, 4u);
  EXPECT_FALSE(entries[0].complete);
}

TEST_F(CacheTest, AGgufsPageIsNoModelBesideIt) {
  add(kCommit, "x-Q4_0.gguf", "four", '4');
  add(kCommit, "README.md", "hello", '5');
  add(kCommit, "config.json", "{}", '6');
  ASSERT_EQ(cache_.list().size(), 1u);
  EXPECT_EQ(cache_.list()[0].name, "a/b:Q4_0");
}

TEST_F(CacheTest, NamesWithoutOwner) {
  EXPECT_EQ(cache_.repo("gpt2"), folder_ / "models--gpt2");
  make_folder(cache_.repo("gpt2") / "blobs");
  ASSERT_EQ(cache_.list().size(), 1u);
  EXPECT_EQ(cache_.list()[0].name, "gpt2");
  EXPECT_EQ(cache_.remove(ModelName{.repo = "gpt2"}, false), 0u);
  EXPECT_TRUE(cache_.list().empty());
}

TEST(Cache, NeedsAFolder) {
  expect_error(ErrorKind::bad_call, "set HF_HOME", [] { Cache{fs::path()}; });
}

}  // namespace
}  // namespace ingot::hub
