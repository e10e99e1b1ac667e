// Weights that were packed by an earlier load: the same bits, found only where they are those of the model's files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "backend/backend.h"
#include "core/error.h"
#include "engine/follower.h"
#include "engine/rank_rig.h"
#include "engine/sequences.h"
#include "formats/test_files.h"

namespace ingot::testing {
namespace {

namespace fs = std::filesystem;

class PackedWeights : public ::testing::Test {
 protected:
  EngineOptions options(const std::string& model, const std::string& use = "read") const {
    EngineOptions options = fixture_options(model, "cpu");
    options.packed_cache = use;
    options.packed_cache_dir = folder_.string();
    return options;
  }
  static EngineOptions plain(EngineOptions options) {
    options.packed_cache = "off";
    return options;
  }

  struct Loaded {
    Logits logits;
    uint64_t found = 0, weights = 0;
    std::string said;  // on stderr
  };
  // Loads, runs, and ends: what is to be kept is written then.
  static Loaded load(const EngineOptions& options) {
    Loaded loaded;
    ::testing::internal::CaptureStderr();
    try {
      const std::unique_ptr<Engine> engine = Engine::load(options);
      loaded.logits = run_as_served(*engine, random_ids(19, engine->limits().vocab, 3));
      loaded.found = engine->memory().found_bytes;
      loaded.weights = engine->memory().weight_bytes;
    } catch (...) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    loaded.said = ::testing::internal::GetCapturedStderr();
    return loaded;
  }
  // That everything but a few norms was found.
  static void expect_found(const Loaded& loaded) {
    EXPECT_GT(loaded.found, loaded.weights / 10 * 9);
    EXPECT_LE(loaded.found, loaded.weights);
    EXPECT_EQ(loaded.said, "");
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder_))
      for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  // A copy that may be changed.
  std::string copy_of(const std::string& model) const {
    const fs::path copy = dir_ / "model";
    fs::copy(fixture_model(model), copy, fs::copy_options::recursive);
    return copy.string();
  }
  static void flip(const fs::path& path, double where) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(where * static_cast<double>(fs::file_size(path)));
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }

  const TempDir dir_;
  const fs::path folder_ = dir_ / "packed";
};

class PackedModels : public PackedWeights, public ::testing::WithParamInterface<std::string> {};

TEST_P(PackedModels, HaveTheSameBits) {
  for (const char* quantize : {"", "int8"}) {
    EngineOptions first = options(fixture_model(GetParam()));
    first.quantize = quantize;
    Logits expected;
    try {
      expected = load(plain(first)).logits;
    } catch (const Error&) {  // nothing in it can be quantized
      ASSERT_STRNE(quantize, "");
      continue;
    }
    const Loaded packed = load(first);
    EXPECT_EQ(packed.found, 0u);
    EXPECT_EQ(packed.said, "");
    expect_equal(expected, packed.logits);
    for (const char* use : {"read", "map"}) {
      EngineOptions again = first;
      again.packed_cache = use;
      const Loaded found = load(again);
      expect_found(found);
      expect_equal(expected, found.logits);
    }
    fs::remove_all(folder_);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, PackedModels,
                         ::testing::Values("llama-bf16-tied",           // one table for both ends
                                           "llama-f16-untied-sharded",  // several files
                                           "gguf-q4_0-llama3",          // rows put back in order
                                           "qwen3-wide-gguf-q4_k_m",    // several formats
                                           "qwen3moe-gguf-q8_0",
                                           "qwen3moe-bf16",  // stacks of experts, in one tensor and in many
                                           "qwen2-awq-g128", "gpt2-bf16"),  // what is computed while it is loaded
                         test_name);

// The panels are those of every instruction set, and of any number of threads.
TEST_F(PackedWeights, OnePathFindsWhatAnotherPacked) {
  EngineOptions portable = options(fixture_model("gguf-q4_0-llama3"));
  portable.isa = "portable";
  load(options(fixture_model("gguf-q4_0-llama3")));
  portable.threads = 3;
  const Loaded found = load(portable);
  expect_found(found);
  expect_equal(load(plain(portable)).logits, found.logits);
  EXPECT_EQ(files().size(), 1u);
}

// In place, of the same length, and with its time set back.
TEST_F(PackedWeights, FilesThatWereOverwrittenAreNotTheSame) {
  for (const auto& [model, file] : {std::pair("llama-bf16-tied", "model.safetensors"), {"gguf-q4_0-llama3", ""}}) {
    const std::string copy = copy_of(model);
    fs::path path = fs::path(copy) / file;
    if (*file == '\0')
      for (const fs::directory_entry& entry : fs::directory_iterator(copy))
        if (entry.path().extension() == ".gguf") path = entry.path();
    const Loaded before = load(options(copy));
    expect_found(load(options(copy)));
    const auto time = fs::last_write_time(path);
    flip(path, 0.7);
    fs::last_write_time(path, time);
    const Loaded after = load(options(copy));
    EXPECT_EQ(after.found, 0u);
    expect_equal(load(plain(options(copy))).logits, after.logits);
    EXPECT_GT(max_difference(before.logits, after.logits), 0) << "the byte is one that matters";
    // Another file in its place, with the same name, size and time.
    fs::copy(path, path.string() + ".new");
    flip(path.string() + ".new", 0.7);
    fs::rename(path.string() + ".new", path);
    fs::last_write_time(path, time);
    const Loaded replaced = load(options(copy));
    EXPECT_EQ(replaced.found, 0u);
    expect_equal(before.logits, replaced.logits);
    fs::remove_all(copy);
    fs::remove_all(folder_);
  }
}

TEST_F(PackedWeights, WhatChangesWhileItIsReadIsNotKept) {
  const std::string copy = copy_of("llama-bf16-tied");
  EngineOptions changing = options(copy);
  bool changed = false;
  changing.progress = [&](size_t, size_t) {
    if (!std::exchange(changed, true)) flip(fs::path(copy) / "model.safetensors", 0.7);
  };
  EXPECT_NE(load(changing).said.find("changed while they were read; the packed weights are not kept"),
            std::string::npos);
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(load(options(copy)).found, 0u);
  expect_found(load(options(copy)));
}

TEST_F(PackedWeights, DamagedFilesArePackedAnew) {
  const EngineOptions first = options(fixture_model("gguf-q4_0-llama3"));
  const Logits expected = load(plain(first)).logits;
  const auto expect_anew = [&](const std::function<void(const fs::path&)>& damage) {
    for (const char* use : {"read", "map"}) {
      load(first);
      ASSERT_EQ(files().size(), 1u);
      damage(files()[0]);
      const Loaded anew = load(options(first.model, use));
      EXPECT_EQ(std::count(anew.said.begin(), anew.said.end(), '\n'), 1) << anew.said;
      EXPECT_NE(anew.said.find("the weights are packed anew"), std::string::npos) << anew.said;
      expect_equal(expected, anew.logits);
      const Loaded found = load(first);
      expect_found(found);
      expect_equal(expected, found.logits);
    }
  };
  expect_anew([](const fs::path& file) { flip(file, 0); });
  expect_anew([](const fs::path& file) { flip(file, 0.99); });
  expect_anew([](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); });
  expect_anew([](const fs::path& file) { fs::resize_file(file, 0); });
  expect_anew([](const fs::path& file) { write_file(file, std::string(fs::file_size(file), '\0')); });
}

// Left by a process that was killed while it wrote.
TEST_F(PackedWeights, HalfAFileIsNone) {
  const EngineOptions first = options(fixture_model("gguf-q4_0-llama3"));
  load(first);
  const fs::path whole = files().at(0);
  const fs::path half = folder_ / ("unfinished-" + whole.stem().string());
  fs::rename(whole, half);
  fs::resize_file(half, fs::file_size(half) / 2);
  EXPECT_EQ(load(first).found, 0u);
  EXPECT_EQ(files(), std::vector<fs::path>{whole});
  expect_found(load(first));
}

TEST_F(PackedWeights, SeveralAtOnce) {
  const EngineOptions first = options(fixture_model("qwen3moe-gguf-q8_0"));
  const Logits expected = load(plain(first)).logits;
  for (int round = 0; round < 4; ++round) {
    ::testing::internal::CaptureStderr();  // where the file is damaged, each of them says so
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        const std::unique_ptr<Engine> engine = Engine::load(options(first.model, i % 2 == 0 ? "read" : "map"));
        expect_equal(expected, run_as_served(*engine, random_ids(19, engine->limits().vocab, 3)));
      });
    for (std::thread& thread : threads) thread.join();
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("anew") != std::string::npos, round == 2) << said;
    ASSERT_EQ(files().size(), 1u);
    expect_found(load(first));
    if (round == 1) flip(files()[0], 0.99);  // under those that come next
    if (round == 2) fs::remove_all(folder_);
  }
}

TEST_F(PackedWeights, TheFolderHasALimit) {
  const char* models[] = {"llama-bf16-tied", "gguf-q4_0-llama3", "qwen3moe-gguf-q8_0"};
  EngineOptions third = options(fixture_model(models[2]));
  load(third);
  const fs::path its = files().at(0);
  uint64_t bytes = fs::file_size(its);
  fs::remove(its);
  load(options(fixture_model(models[0])));
  load(options(fixture_model(models[1])));
  for (const fs::path& file : files()) {
    bytes += fs::file_size(file);
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  load(options(fixture_model(models[0])));  // used now
  third.packed_cache_bytes = bytes - 1;
  load(third);
  expect_found(load(options(fixture_model(models[0]))));
  expect_found(load(third));
  EXPECT_EQ(load(options(fixture_model(models[1]))).found, 0u) << "made room";
  third.packed_cache_bytes = 1000;
  fs::remove_all(folder_);
  EXPECT_NE(load(third).said.find("see --packed-cache-bytes; the packed weights are not kept"), std::string::npos);
}

// Each rank has a file of its own: it has other rows and columns.
TEST_F(PackedWeights, RanksKeepTheirShares) {
  for (const auto& [model, cut] : {std::pair("gguf-q4_0-llama3", Cut(2)), {"gguf-q4_0-llama3", Cut(2, 2)},
                                   {"llama-bf16-tied", Cut(2)}, {"llama-bf16-tied", Cut(1, 2)}}) {
    fs::remove_all(folder_);
    EngineOptions all = options(fixture_model(model));
    all.threads = 1;
    Logits expected;
    with_ranks(plain(all), cut, [&](Engine& engine) { expected = rank_logits(engine); });
    for (const bool again : {false, true}) {
      with_ranks(all, cut, [&](Engine& engine) {
        EXPECT_EQ(engine.memory().found_bytes > 0, again);
        expect_equal(expected, rank_logits(engine));
      });
      EXPECT_EQ(files().size(), static_cast<size_t>(cut.tp * cut.pp));
    }
    // A model that is whole has other matrices.
    EXPECT_EQ(load(all).found, 0u);
  }
}

TEST_F(PackedWeights, DummyWeightsAreNotKept) {
  EngineOptions dummy = options(fixture_config("Qwen2-0.5B"));
  dummy.model = fixture_model("llama-bf16-tied");
  dummy.load_format = "dummy";
  EXPECT_NE(load(dummy).said.find("dummy weights are made anew"), std::string::npos);
  EXPECT_TRUE(files().empty());
}

TEST_F(PackedWeights, UnwritableFoldersCostALine) {
  EngineOptions nowhere = options(fixture_model("llama-bf16-tied"));
  write_file(dir_ / "file", "x");
  nowhere.packed_cache_dir = (dir_ / "file/packed").string();
  const Loaded loaded = load(nowhere);
  EXPECT_EQ(std::count(loaded.said.begin(), loaded.said.end(), '\n'), 1) << loaded.said;
  EXPECT_NE(loaded.said.find("packed weights are not kept there"), std::string::npos) << loaded.said;
  expect_equal(load(plain(nowhere)).logits, loaded.logits);
  nowhere.packed_cache = "always";
  expect_error(ErrorKind::bad_call, "must be off, read or map", [&] { Engine::load(nowhere); });
}

}  // namespace
}  // namespace ingot::testing
