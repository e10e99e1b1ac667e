// The commands under mpirun: real processes that share a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/slurp.h"
#include "engine/sequences.h"
#include "soak.h"

namespace ingot::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class MpiRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun (openmpi-bin)";
    char name[] = "/tmp/ingot-ranks-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  // More ranks than cores, one thread each; without ssh where there is none.
  static std::string ingot(int ranks) {
    if (ranks == 1) return std::string("exec ") + INGOT_BINARY + " ";
    return "exec mpirun --allow-run-as-root --oversubscribe --mca plm_rsh_agent /bin/false -n " +
           std::to_string(ranks) + " " + INGOT_BINARY + " ";
  }
  static std::string options(int ranks) { return " -t 1 --tp " + std::to_string(ranks); }

  pid_t start(const std::string& command) const {
    const pid_t child = fork();
    if (child == 0) {
      const std::string line = command + " >" + file("out") + " 2>" + file("err") + " </dev/null";
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }
  int run(const std::string& command) const {
    int status = -1;
    waitpid(start(command), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder_;
};

TEST_F(MpiRanks, GiveTheBitsOfOne) {
  const std::string tiny = " -m " + fixture_model("llama-f16-untied-sharded");
  const struct {
    std::string model;
    int ranks;
    std::string cut;
  } cases[] = {{"", 2, " --tp 2"}, {tiny, 4, " --tp 4"}, {"", 2, " --pp 2"}, {tiny, 4, " --tp 2 --pp 2"}};
  for (const auto& [model, ranks, cut] : cases) {
    const auto logits = [&](int n, const std::string& name) {
      EXPECT_EQ(run(ingot(n) + "logits --ids 5,17,100,3,42,7 -c 64 -t 1 -o " + file(name) + model + (n > 1 ? cut : "")),
                0)
          << slurp(file("err"));
      return slurp(file(name));
    };
    const std::string alone = logits(1, "alone.npy");
    EXPECT_GT(alone.size(), 1000u);
    EXPECT_TRUE(alone == logits(ranks, "shared.npy")) << cut;
  }
}

// Connected by MPI, and as they are between machines.
TEST_F(MpiRanks, DrawTheSameTokens) {
  const auto drawn = [&](int ranks, const std::string& link = "") {
    EXPECT_EQ(run(link + ingot(ranks) + "run -p 'Once upon a time' -n 12 --temperature 0.9 --seed 3 -c 64 --json" +
                  options(ranks)),
              0)
        << slurp(file("err"));
    return nlohmann::json::parse(slurp(file("out")))["token_ids"];
  };
  const auto alone = drawn(1);
  EXPECT_EQ(drawn(2), alone);
  EXPECT_EQ(drawn(2, "export INGOT_LINK=tcp; "), alone);
}

// Every command that loads a model; `bench` is below, `serve` in tests/server.
TEST_F(MpiRanks, RunEveryCommand) {
  const std::string text = file("text");
  std::ofstream(text) << "Once upon a time there was a fox who lived in a wood, and it was content all day long.";
  const struct {
    std::string before, command, cut;
  } cases[] = {{"echo 'Say hi' | ", "chat -n 8 --temperature 0 -c 64 -t 1", " --pp 2"},
               {"", "perplexity --ctx 16 -t 1 -f " + text, " --tp 2"},
               {"", "embed --embeddings -c 64 -t 1 fox", " --pp 2"}};
  for (const auto& [before, command, cut] : cases) {
    const auto said = [&](int ranks, const std::string& options) {
      const std::string launch = ingot(ranks).substr(std::string("exec ").size());
      EXPECT_EQ(run("(" + before + launch + command + options + ")"), 0) << command << "\n" << slurp(file("err"));
      return slurp(file("out"));
    };
    const std::string alone = said(1, "");
    EXPECT_FALSE(alone.empty());
    EXPECT_EQ(said(2, cut), alone);
  }
}

// The program runs where there is no MPI: it is loaded once --tp or --pp asks for it.
TEST_F(MpiRanks, NeedMpiOnlyWhereTheyAre) {
  if (std::system("command -v readelf >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no readelf";
  ASSERT_EQ(run(std::string("readelf -d ") + INGOT_BINARY), 0) << slurp(file("err"));
  EXPECT_THAT(slurp(file("out")), HasSubstr("NEEDED"));
  EXPECT_EQ(slurp(file("out")).find("mpi"), std::string::npos) << slurp(file("out"));
}

// What one rank cannot do, all do not; and it is said once.
TEST_F(MpiRanks, AnErrorIsSaidOnce) {
  EXPECT_NE(run(ingot(4) + "logits --ids 1,2 -o " + file("x.npy") + " -m " + fixture_model("qwen3-bf16") + options(4)),
            0);
  const std::string said = slurp(file("err"));
  EXPECT_THAT(said, HasSubstr("ingot: --tp 4: this model cannot be cut for so many ranks"));
  EXPECT_EQ(said.find("ingot: ", said.find("ingot: ") + 1), std::string::npos) << said;
}

TEST_F(MpiRanks, EndWithinFiveSecondsOfADeathOrAStandstill) {
  const struct {
    int rank, signal;
  } cases[] = {{0, SIGKILL}, {1, SIGSTOP}};  // the others: tests/server/faults_test.py
  for (const auto& [dies, signal] : cases) {
    const pid_t launcher = start(ingot(2) + "bench --batch 1 --prompt-len 16 --gen-len 8000" + options(2));
    pid_t victim = 0;
    for (int tries = 0; victim == 0 && tries < 3000; ++tries) {
      std::this_thread::sleep_for(20ms);
      const std::string id = std::to_string(launcher);
      std::istringstream children(slurp("/proc/" + id + "/task/" + id + "/children"));
      for (pid_t child = 0; children >> child;) {
        const std::string environment = slurp("/proc/" + std::to_string(child) + "/environ");
        if (environment.find("OMPI_COMM_WORLD_RANK=" + std::to_string(dies)) == std::string::npos) continue;
        // With a model it has joined the group.
        if (slurp("/proc/" + std::to_string(child) + "/maps").find(".gguf") != std::string::npos) victim = child;
      }
    }
    ASSERT_NE(victim, 0) << slurp(file("err"));
    std::this_thread::sleep_for(500ms);  // in the midst of its steps
    kill(victim, signal);
    const auto most = test::soak() ? 5s : 30s;  // in the suite: that it ends; a busy machine takes 6 and more
    const auto begin = std::chrono::steady_clock::now();
    int status = 0;
    pid_t ended = 0;
    while (ended == 0 && std::chrono::steady_clock::now() - begin < most) {
      ended = waitpid(launcher, &status, WNOHANG);
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(ended, launcher) << "rank " << dies << " got signal " << signal << " and the group went on";
    if (ended == 0) {
      kill(victim, SIGKILL);
      kill(launcher, SIGTERM);
      waitpid(launcher, &status, 0);
    }
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_THAT(slurp(file("err")) + slurp(file("out")), HasSubstr("rank " + std::to_string(dies)));
  }
}

TEST_F(MpiRanks, AreAskedForWhereTheyAreNot) {
  EXPECT_EQ(run(ingot(1) + "run --ids 1,2 --tp 2"), 2);
  EXPECT_THAT(slurp(file("err")),
              HasSubstr("--tp and --pp ask for 2 processes: start them, `mpirun -n 2 ingot ...`; there is 1"));
  EXPECT_EQ(run(ingot(1) + "inspect --tp 2 --device cpu"), 0) << slurp(file("err"));
  EXPECT_THAT(slurp(file("out")), HasSubstr("rank 1         heads 4 to 8 of 9, KV heads 1 to 2 of 3, MLP 768 to 1535"));
  EXPECT_THAT(slurp(file("out")), HasSubstr("a rank sends   61 messages and 137.2 KiB a token"));
  // Four send each other quarters (RanksOfASession counts them).
  EXPECT_EQ(run(ingot(1) + "inspect --tp 4 --device cpu"), 0) << slurp(file("err"));
  EXPECT_THAT(slurp(file("out")), HasSubstr("a rank sends   366 messages and 205.9 KiB a token"));
  // As fast as each other: the head weighs as much as some layers. With little memory one has fewer still.
  EXPECT_EQ(run(ingot(1) + "inspect --pp 2 --device cpu --hosts one:1:8,other:1:8"), 0) << slurp(file("err"));
  EXPECT_THAT(slurp(file("out")), HasSubstr("rank 0         layers 0 to 21 of 30, embedding left in the file on one"));
  EXPECT_THAT(slurp(file("out")), HasSubstr("a stage sends  1 message a step and 2.2 KiB a token"));
  EXPECT_NE(run(ingot(1) + "inspect --pp 2 --device cpu --hosts one:1:8,other:1:0.1"), 0);
  EXPECT_THAT(slurp(file("out")), HasSubstr("declined: rank 1 on other: the model does not fit, "));
  EXPECT_EQ(run(ingot(1) + "inspect --pp 2 --hosts one:1"), 2);
  EXPECT_THAT(slurp(file("err")), HasSubstr("--hosts has room for 1 ranks, --tp 1 and --pp 2 make 2"));
}

}  // namespace
}  // namespace ingot::testing
