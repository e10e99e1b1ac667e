// The address of a block in files: each thing that its bytes depend on changes it.
#include "engine/identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/sequences.h"
#include "engine/thread_group.h"
#include "formats/test_files.h"

namespace ingot::testing {
namespace {

namespace fs = std::filesystem;

class Identity : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.model = (dir_.path() / "model").string();
    fs::copy(fixture_model("llama-bf16-llama3"), options_.model, fs::copy_options::recursive);
    kv_ = {.layers = 2, .num_blocks = 8, .kv_heads = 2, .block_size = 16, .head_size = 32, .dtype = KvType::f16};
    device_ = {.name = "cpu", .numerics = "avx512"};
  }

  std::string identity(int numerics = kNumerics) {
    return cache_identity(options_, kv_, device_,
                          {.get = [this](const std::string& name) { return notes_[name]; },
                           .set = [this](const std::string& name, const std::string& hash) { notes_[name] = hash; }},
                          numerics);
  }
  // The identity with something changed that is then as it was.
  template <typename T>
  std::string with(T& thing, T value) {
    const T before = std::exchange(thing, std::move(value));
    std::string found = identity();
    thing = before;
    return found;
  }
  template <typename Change>
  void edit_config(const Change& change) {
    const fs::path path = fs::path(options_.model) / "config.json";
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path));
    change(config);
    std::ofstream(path) << config.dump();
  }

  const TempDir dir_;
  EngineOptions options_;
  KvLayout kv_;
  DeviceInfo device_;
  std::map<std::string, std::string> notes_;
};

TEST_F(Identity, EachThingThatBytesDependOnChangesIt) {
  const std::string base = identity();
  std::map<std::string, std::string> all{{"as it is", base}};
  all["KV type"] = with(kv_.dtype, KvType::int8);
  all["layers"] = with(kv_.layers, int64_t{3});
  all["KV heads"] = with(kv_.kv_heads, int64_t{1});
  all["head size"] = with(kv_.head_size, int64_t{64});
  all["block size"] = with(kv_.block_size, int64_t{32});
  all["device"] = with(device_.name, std::string("metal"));
  all["instruction set"] = with(device_.numerics, std::string("avx2"));
  all["load format"] = with(options_.load_format, std::string("dummy"));
  all["type of weights"] = with(options_.dtype, std::string("f16"));
  all["quantized"] = with(options_.quantize, std::string("int8"));
  all["shares of a model"] = with(options_.tp, 2);
  all["stages of a model"] = with(options_.pp, 2);
  const auto groups = ThreadGroup::make(2);
  options_.tp = 2;
  all["rank"] = with(options_.group, groups[1]);
  options_.tp = 1;
  all["numerics"] = identity(kNumerics + 1);
  edit_config([](auto& config) { config["rope_theta"] = 2000.0; });
  all["RoPE's theta"] = identity();
  edit_config([](auto& config) {
    config["rope_theta"] = 1000.0;
    config["rope_scaling"]["factor"] = 4.0;
  });
  all["RoPE's scaling"] = identity();
  std::set<std::string> different;
  for (const auto& [what, value] : all) EXPECT_TRUE(different.insert(value).second) << what << " changes nothing";
  // What it does not depend on.
  EXPECT_EQ(with(kv_.num_blocks, int64_t{9}), identity());
  EXPECT_EQ(with(options_.threads, 7), identity());
}

// Files are known by what is in them. A note spares the reading while nobody has touched them, and only then.
TEST_F(Identity, WeightsAreKnownByTheirBytes) {
  const std::string base = identity();
  EXPECT_EQ(notes_.size(), 1u);
  EXPECT_EQ(identity(), base);
  const fs::path weights = fs::path(options_.model) / "model.safetensors";
  const auto time = fs::last_write_time(weights);
  {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-2, std::ios::end);
    const int byte = file.get();
    file.seekp(-2, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
  }
  fs::last_write_time(weights, time);  // one bit, and the time set back
  const std::string other = identity();
  EXPECT_NE(other, base);
  EXPECT_EQ(notes_.size(), 2u) << "it was read again";
  const fs::path moved = dir_.path() / "elsewhere";
  fs::copy(options_.model, moved, fs::copy_options::recursive);
  EXPECT_EQ(with(options_.model, moved.string()), other) << "the same bytes in another place";
}

}  // namespace
}  // namespace ingot::testing
