// The commands as a user calls them: real processes, real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/slurp.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
  double peak_mb = 0;  // of memory, as the system counted it
};

class Cli : public ::testing::Test {
 protected:
  Cli() {
    char name[] = "/tmp/ingot-cli-XXXXXX";
    folder_ = mkdtemp(name);
    model_ = "-m " + fixture_model("llama-bf16-llama3") + " ";
  }
  ~Cli() override { std::filesystem::remove_all(folder_); }

  Outcome ingot(const std::string& arguments) {
    const std::string command =
        std::string(INGOT_BINARY) + " " + arguments + " >" + file("out") + " 2>" + file("err") + " </dev/null";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    int status = -1;
    rusage usage{};
    wait4(child, &status, 0, &usage);
#ifdef __APPLE__
    const double unit = 1;
#else
    const double unit = 1024;
#endif
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(file("out")), slurp(file("err")),
            static_cast<double>(usage.ru_maxrss) * unit / 1e6};
  }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  // A failure is one line on stderr that starts with the program's name, and the right status.
  void expect_failure(const std::string& arguments, int status, const std::string& says) {
    const Outcome outcome = ingot(arguments);
    EXPECT_EQ(outcome.status, status) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("ingot: ")) << arguments;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(says)) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }

  std::string folder_;
  std::string model_;
};

TEST_F(Cli, HelpAndVersion) {
  EXPECT_EQ(ingot("--version").out, "ingot " INGOT_VERSION "\n");
  const Outcome help = ingot("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"run", "bench", "logits", "perplexity", "tokenize", "inspect", "doctor"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const Outcome own = ingot(std::string(command) + " --help");
    EXPECT_EQ(own.status, 0);
    EXPECT_THAT(own.out, HasSubstr("--model"));
  }
  // Options of which one may be given are listed as the others are.
  EXPECT_THAT(ingot("run --help").out,
              HasSubstr("\nFormat (what the answer must be: at most one of these):\n  --schema"));
  for (const char* command : {"run", "chat", "grammar"})
    EXPECT_THAT(ingot(std::string(command) + " --help").out, Not(HasSubstr("[Option Group")));
}

TEST_F(Cli, LimitsOfTheServerHaveLimits) {
  expect_failure("serve -m /nowhere --max-connections 1048577", 2, "--max-connections");
  expect_failure("serve -m /nowhere --max-connections 1048576", 1, "/nowhere");
}

TEST_F(Cli, BadCallsExitWithTwo) {
  expect_failure("", 2, "give a command");
  expect_failure("fly", 2, "fly");
  expect_failure("run " + model_, 2, "prompt");
  expect_failure("run -m x --ids 1,two", 2, "two");
  const std::string tiny = "-m " + fixture_model("llama-bf16-llama3") + " ";
  expect_failure("run " + tiny + "--ids 1,2 --temperature -1", 2, "temperature");
  expect_failure("run " + tiny + "--ids 1,2 --top-p 7", 2, "--top-p: must be at most 1, got 7");
  // Flags are judged by the rules of the server, before a model is looked for.
  expect_failure("run -m /nowhere --ids 1,2 --top-p 0", 2, "--top-p: must be above 0, got 0");
  expect_failure("run -m /nowhere --ids 1,2 --presence-penalty 2.5", 2, "must be at most 2, got 2.5");
  expect_failure("run -m /nowhere --ids 1,2 --temperature warm", 2, "must be a number, got warm");
  expect_failure("run " + tiny + "--ids 1,99999", 2, "99999");
  expect_failure("run " + tiny + "--ids 1 --device toaster", 2, "toaster");
  expect_failure("run " + tiny + "--ids 1 --isa sse9", 2, "sse9");
  expect_failure("run " + tiny + "--ids 1 --max-model-len 100000000", 2, "100000000");
}

TEST_F(Cli, FailuresExitWithOne) {
  expect_failure("run -m /nowhere/model.gguf -p x", 1, "/nowhere/model.gguf");
  expect_failure("run -m " + fixture_model("llama-bf16-llama3") + " --ids 1 --device cuda", 1, "cuda");
  std::ofstream(file("bad.gguf")) << "GGUF but not really";
  expect_failure("inspect " + file("bad.gguf"), 1, "bad.gguf");
  // No tokenizer in this folder: text is declined, ids work.
  expect_failure("run -m " + fixture_model("llama-bf16-llama3") + " -p hello", 1, "tokenizer");
}

TEST_F(Cli, RunCompletesTokenIds) {
  const Outcome outcome = ingot("run " + model_ + "--ids 5,6,7,8 -n 6 --temperature 0 --ignore-eos --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["token_ids"].size(), 6u);
  EXPECT_EQ(report["finish_reason"], "length");
  EXPECT_EQ(report["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(report["usage"]["completion_tokens"], 6);
  EXPECT_GT(report["timings"]["decode_tok_s"].get<double>(), 0);
  EXPECT_TRUE(report.contains("text"));
  // Chunked prefill and a seed change nothing in a greedy answer.
  const json chunked = json::parse(
      ingot("run " + model_ + "--ids 5,6,7,8 -n 6 --temperature 0 --ignore-eos --json --max-step-tokens 2 --seed 3")
          .out);
  EXPECT_EQ(chunked["token_ids"], report["token_ids"]);
}

TEST_F(Cli, SeedsRepeat) {
  const std::string call = "run " + model_ + "--ids 5,6,7,8 -n 12 --temperature 1.5 --ignore-eos --json --seed ";
  const json first = json::parse(ingot(call + "1").out);
  EXPECT_EQ(json::parse(ingot(call + "1").out)["token_ids"], first["token_ids"]);
  EXPECT_NE(json::parse(ingot(call + "2").out)["token_ids"], first["token_ids"]);
}

TEST_F(Cli, LogitsAreTheReference) {
  const Reference reference = fixture_reference("llama-bf16-llama3");
  std::string ids;
  for (int32_t id : reference.ids) ids += (ids.empty() ? "" : ",") + std::to_string(id);
  const Outcome outcome = ingot("logits " + model_ + "--ids " + ids + " --out " + file("logits.npy"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string bytes = slurp(file("logits.npy"));
  ASSERT_GT(bytes.size(), 128u);
  EXPECT_EQ(bytes.substr(1, 5), "NUMPY");
  const size_t vocab = reference.logits[0].size();
  ASSERT_EQ((bytes.size() - 128) % (vocab * 4), 0u);
  ASSERT_EQ((bytes.size() - 128) / (vocab * 4), reference.ids.size());
  Logits got(reference.ids.size(), std::vector<float>(vocab));
  for (size_t r = 0; r < got.size(); ++r) std::memcpy(got[r].data(), bytes.data() + 128 + r * vocab * 4, vocab * 4);
  EXPECT_LT(max_difference(got, reference.logits), 0.05);
}

TEST_F(Cli, BenchReportsEveryField) {
  const Outcome outcome =
      ingot("bench " + model_ + "--batch 1,3 --prompt-len 9 --gen-len 4 --threads 2 --json --plot " + file("p.svg"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  for (const char* field :
       {"model", "device", "threads", "host_read_gb_s", "rows", "load_s", "model_peak_rss_mb", "peak_rss_mb"})
    EXPECT_TRUE(report.contains(field)) << field;
  ASSERT_EQ(report["rows"].size(), 2u);
  for (const json& row : report["rows"]) {
    for (const char* field :
         {"batch", "prefill_tok_s", "decode_tok_s", "step_ms_p50", "step_gap_us_p50", "weight_gb_s"})
      EXPECT_TRUE(row[field].is_number()) << field;
    EXPECT_EQ(row["submissions_per_step"], 1);
    EXPECT_EQ(row["waits_per_step"], 1);
  }
  EXPECT_THAT(slurp(file("p.svg")), EndsWith("</svg>\n"));
}

// A model that guesses for itself is always right, unless the measurement says otherwise.
TEST_F(Cli, BenchSaysWhatGuessingIsWorth) {
  const std::string model = fixture_model("llama-bf16-llama3");
  const std::string command = "bench -m " + model + " --speculate draft --draft-model " + model +
                              " --batch 2 --prompt-len 9 --gen-len 60 --threads 1 --json ";
  for (const char* acceptance : {"", "--draft-acceptance 0"}) {
    const Outcome outcome = ingot(command + acceptance);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json report = json::parse(outcome.out);
    ASSERT_EQ(report["rows"].size(), 1u);
    const json& row = report["rows"][0];
    for (const char* field : {"batch", "plain_tok_s", "speculated_tok_s", "ratio", "draft_tokens", "accepted_tokens",
                              "tokens_per_step", "draft_steps", "draft_step_ms"})
      EXPECT_TRUE(row[field].is_number()) << field;
    EXPECT_GT(row["plain_tok_s"].get<double>(), 0);
    if (*acceptance != 0)
      EXPECT_EQ(row["accepted_tokens"], 0);
    else
      EXPECT_EQ(row["accepted_tokens"], row["draft_tokens"]);
  }
}

// The answer is the same whoever guesses; the figures say how well.
TEST_F(Cli, RunWithADraftModel) {
  const std::string model = fixture_model("llama-bf16-llama3");
  const std::string command = "run -m " + model + " --ids 5,6,7 -n 60 --temperature 0 --threads 1 --json ";
  const Outcome plain = ingot(command + "--speculate off"), guessing = ingot(command + "--draft-model " + model);
  ASSERT_EQ(plain.status, 0) << plain.err;
  ASSERT_EQ(guessing.status, 0) << guessing.err;
  EXPECT_EQ(json::parse(plain.out)["token_ids"], json::parse(guessing.out)["token_ids"]);
  EXPECT_EQ(json::parse(plain.out)["timings"]["draft_tokens"], 0);
  const Outcome other = ingot("run -m " + model + " --ids 5 --draft-model " + fixture_model("llama-bf16-tied"));
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err, HasSubstr("take a draft model with the same vocabulary"));
}

TEST_F(Cli, InspectSaysWhatAndWhere) {
  const Outcome outcome = ingot("inspect " + fixture_model("llama-bf16-llama3"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("architecture"));
  EXPECT_THAT(outcome.out, HasSubstr("memory plan"));
  EXPECT_THAT(outcome.out, HasSubstr("accepted"));
}

TEST_F(Cli, QuantizeWritesAFileThatRuns) {
  const std::string out = file("q.gguf"), folder = fixture_model("llama-bf16-wide");
  Outcome outcome = ingot("quantize " + folder + " " + out + " --type q4_k");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(" from "));
  const auto ids = [&](const std::string& arguments) {
    const Outcome run = ingot("run " + arguments + " --ids 5,6,7 -n 8 --temperature 0 --json");
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out)["token_ids"];
  };
  EXPECT_EQ(ids("-m " + out), ids("-m " + folder + " --quantize int4"));

  expect_failure("quantize " + folder + " " + out, 2, "is there already");
  expect_failure("quantize " + out + " " + out + " --force", 2, "is the model itself");
  expect_failure("quantize " + out + " " + file("r.gguf"), 2, "has no matrix to quantize");
  expect_failure("quantize " + folder + " " + file("r.gguf") + " --type q3_k", 2, "must be q8_0, q4_0, q4_k or iq4_nl");
  expect_failure("quantize " + fixture_model("mistral-bf16-window") + " " + file("r.gguf"), 1, "its sliding window");
  expect_failure("run -m " + folder + " --quantize int3 --ids 1 -n 1", 2, "must be int8 or int4");
  outcome = ingot("quantize " + fixture_model("gguf-bf16-llama3") + " " + out + " --type q8_0 --force");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  // A tokenizer of another model.
  std::filesystem::copy(folder, file("mixed"));
  std::filesystem::copy(fixture_model("../tokenizers/smollm/tokenizer.json"), file("mixed"));
  expect_failure("quantize " + file("mixed") + " " + file("r.gguf"), 1, "the embedding only 151 rows");
  EXPECT_FALSE(std::filesystem::exists(file("r.gguf")));
}

TEST_F(Cli, InspectNamesWhoPackedTheWeights) {
  const Outcome outcome = ingot("inspect --device cpu " + fixture_model("llama-mlx-mixed"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("packed by        MLX in 4 bits, groups of 128, some modules otherwise"));
}

TEST_F(Cli, DoctorPasses) {
  const Outcome outcome = ingot("doctor");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("VLLM_METAL_SCRATCH_POOL_MB"));
  EXPECT_THAT(outcome.out, HasSubstr("self-test"));
  EXPECT_EQ(outcome.out.find("FAILED"), std::string::npos) << outcome.out;
  EXPECT_THAT(ingot("doctor --device metal").out, HasSubstr("\n  kernels: ")) << "a file, or a source";
  setenv("VLLM_METAL_MAX_BATCH_SIZE", "many", 1);
  EXPECT_EQ(ingot("doctor").status, 2);
  unsetenv("VLLM_METAL_MAX_BATCH_SIZE");
}

// Also where no engine is loaded that would look at them.
TEST_F(Cli, EveryCommandChecksTheVariables) {
  setenv("VLLM_METAL_PROFILE", "maybe", 1);
  for (const char* command : {"tokenize -p x", "run --ids 1", "inspect", "quantize a b.gguf", "export-hf a.gguf b",
                              "pull a/b", "list", "rm a/b"})
    expect_failure(command, 2, "VLLM_METAL_PROFILE=maybe: must be 0 or 1");
  unsetenv("VLLM_METAL_PROFILE");
}

TEST_F(Cli, ConfigFileGivesFlags) {
  std::ofstream(file("ingot.toml")) << "model = \"" << fixture_model("llama-bf16-llama3")
                                    << "\"\nmax-tokens = 3  # few\nignore-eos = true\n";
  const Outcome outcome = ingot("run --config " + file("ingot.toml") + " --ids 5,6 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["token_ids"].size(), 3u);
  const Outcome overridden = ingot("run --config=" + file("ingot.toml") + " --ids 5,6 --json -n 2");
  EXPECT_EQ(json::parse(overridden.out)["token_ids"].size(), 2u) << "the command line wins";
  std::ofstream(file("bad.toml")) << "model = x\nwheels = 4\n";
  expect_failure("run --config " + file("bad.toml") + " --ids 5", 2, "bad.toml:2");
}

class DefaultModel : public Cli {
 protected:
  void SetUp() override {
    ASSERT_FALSE(default_model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  }
};

TEST_F(DefaultModel, AnswersInText) {
  const Outcome outcome = ingot("run --chat -p 'What is the capital of France?' -n 24 --temperature 0 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_THAT(report["text"].get<std::string>(), HasSubstr("Paris"));
}

// Never two copies of the weights: they are repacked panel by panel and the file's pages are dropped behind.
TEST_F(DefaultModel, PeakMemoryIsTheFileAndThePlan) {
  const Outcome outcome = ingot("bench --batch 1,16 --prompt-len 64 --gen-len 4 --max-step-tokens 1024 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double file_mb = static_cast<double>(std::filesystem::file_size(default_model())) / 1e6;
  const double kv_mb =
      16 * 80 * 23.04e-3;  // 16 sequences of 5 blocks of 16; 30 layers * 2 * 3 heads * 64 * 2 bytes a position
  const double scratch_mb =
      1024 * (576 * 8 + 64 * 4 + 1536 * 4 + 1536 * 6) / 1e6;  // without the logits: 16 rows of them
  const json report = json::parse(outcome.out);
  EXPECT_LT(report["model_peak_rss_mb"].get<double>(), 1.15 * file_mb + kv_mb + scratch_mb + 80);
  EXPECT_NEAR(report["peak_rss_mb"].get<double>(), outcome.peak_mb, 0.03 * outcome.peak_mb) << "to its very end";
}

TEST_F(Cli, ToolsParseTellsWhatATextMeans) {
  std::ofstream(file("text")) << "<think>Hm.</think>Look:<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n"
                                 "<parameter=b>\n\u00fc\n</parameter>\n</function>\n</tool_call>";
  std::ofstream(file("tools.json")) << R"([{"type": "function", "function": {"name": "add", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}}}])";
  const std::string parse = "tools parse --tool-format qwen3_coder --tools " + file("tools.json") + " " + file("text");
  const Outcome outcome = ingot(parse);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(
      outcome.out,
      R"({"content":"Look:","reasoning":"Hm.","tool_calls":[{"name":"add","arguments":"{\"a\": 2, \"b\": \"ü\"}"}],)"
      R"("finish_reason":"tool_calls"})"
      "\n");
  for (const char* cut : {" --cut 1", " --cut 2", " --cut 7", " --cut 100000"})
    EXPECT_EQ(ingot(parse + cut).out, outcome.out) << cut;
  const json other = json::parse(ingot("tools parse --tool-format hermes " + file("text")).out);
  EXPECT_EQ(other["tool_calls"], json::array());
  EXPECT_EQ(other["finish_reason"], "stop");
  EXPECT_EQ(other["reasoning"], "Hm.");

  EXPECT_THAT(ingot("tools --help").out, HasSubstr("qwen3_coder"));
  expect_failure("tools parse --tool-format hermit " + file("text"), 2, "hermes");
  expect_failure("tools parse " + file("text"), 2, "--tool-format");
  expect_failure("tools parse --tool-format hermes", 2, "FILE");
  expect_failure("tools eat --tool-format hermes " + file("text"), 2, "parse");
  expect_failure("tools parse --tool-format hermes " + file("none"), 1, "none");
  expect_failure("tools parse --tool-format hermes --tools " + file("text") + " " + file("text"), 1, "JSON");
}

TEST_F(DefaultModel, TokenizesBothWays) {
  const Outcome outcome = ingot("tokenize -p 'Hello, world!'");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out), json({19556, 28, 905, 17}));
  EXPECT_EQ(ingot("tokenize --ids 19556,28,905,17").out, "Hello, world!\n");
  EXPECT_EQ(json::parse(ingot("tokenize --special -p '<|im_end|>'").out), json({2}));
  EXPECT_GT(json::parse(ingot("tokenize -p '<|im_end|>'").out).size(), 1u);
}

TEST_F(DefaultModel, ChecksTextsAgainstGrammars) {
  std::ofstream(file("s.json")) << R"({"type":"object","properties":{"age":{"type":"integer"}},"required":["age"]})";
  std::ofstream(file("good")) << "{\"age\": 41, \"x\": [\"\xC3\xA9\"]}\n";
  std::ofstream(file("bad")) << "{\"age\": \"41\"}\n";
  std::ofstream(file("short")) << "{\"age\": 4";
  const std::string files = " " + file("good") + " " + file("bad") + " " + file("short");
  EXPECT_EQ(ingot("grammar check --schema " + file("s.json") + files).out,
            "accepts\nrejects at byte 8\nrejects at byte 9\n");
  const Outcome outcome = ingot("grammar check --json --regex '.*41.*' " + file("good") + " " + file("short"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  for (const bool accepts : {true, false}) {
    std::string line;
    std::getline(lines, line);
    const json report = json::parse(line);
    EXPECT_EQ(report["accepts"], accepts);
    EXPECT_EQ(report["at"], accepts ? json() : json(9));
    for (const char* key : {"compile_ms", "mask_us_p50", "mask_us_p99"}) EXPECT_GT(report[key], 0.0) << key;
  }
  std::ofstream(file("g.gbnf")) << "root ::= \"{\" .* \"}\"";
  EXPECT_EQ(ingot("grammar check --gbnf " + file("g.gbnf") + " " + file("good")).out, "accepts\n");
  std::ofstream(file("no.json")) << R"({"properties":{"a":{"uniqueItems":true}}})";
  expect_failure("grammar check --schema " + file("no.json") + files, 2, "#/properties/a/uniqueItems is not supported");
  EXPECT_EQ(ingot("grammar check --choice a --choice '{\"age\": 4' " + file("short")).out, "accepts\n");
  expect_failure("grammar check" + files, 2, "Exactly 1 option");
  expect_failure("grammar fly --regex a" + files, 2, "fly");
}

// Two at once, those that find what these packed, and one whose file was cut short.
TEST_F(Cli, PackedWeightsAreKept) {
  const std::string flags = "logits " + model_ + "--ids 5,6,7,8 ";
  ASSERT_EQ(ingot(flags + "--out " + file("plain.npy")).status, 0);
  const std::string plain = slurp(file("plain.npy")), folder = file("cache/packed");
  ASSERT_EQ(setenv("INGOT_CACHE", file("cache").c_str(), 1), 0);
  const std::string packed = std::string(INGOT_BINARY) + " " + flags + "--packed-cache ";
  const Outcome both = ingot("--version >" + file("version") + "; " + packed + "read --out " + file("a.npy") + " & " +
                             packed + "map --out " + file("b.npy") + " && wait");
  EXPECT_EQ(both.status, 0);
  EXPECT_EQ(both.err, "");
  EXPECT_EQ(slurp(file("a.npy")), plain);
  EXPECT_EQ(slurp(file("b.npy")), plain);
  const auto files = [&] {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) found.push_back(entry.path());
    return found;
  };
  ASSERT_EQ(files().size(), 1u);
  EXPECT_THAT(files()[0].string(), EndsWith(".packed"));
  for (const char* use : {"read", "map"}) {
    const Outcome again = ingot(flags + "--packed-cache " + use + " --out " + file("c.npy"));
    EXPECT_EQ(again.err, "");
    EXPECT_EQ(slurp(file("c.npy")), plain);
  }
  const json report =
      json::parse(ingot("bench " + model_ + "--batch 1 --prompt-len 8 --gen-len 4 --json --packed-cache read").out);
  EXPECT_GT(report["found_mb"].get<double>(), 0.05);
  EXPECT_LE(report["found_mb"], report["planned_mb"]);
  std::filesystem::resize_file(files()[0], 5000);
  const Outcome damaged = ingot(flags + "--packed-cache read --out " + file("d.npy"));
  EXPECT_EQ(damaged.status, 0);
  EXPECT_THAT(damaged.err, HasSubstr("the weights are packed anew\n"));
  EXPECT_EQ(slurp(file("d.npy")), plain);
  const Outcome elsewhere = ingot(flags + "--packed-cache read --packed-cache-dir " + file("other") +
                                  " --packed-cache-bytes 1KiB --out " + file("e.npy"));
  EXPECT_THAT(elsewhere.err, HasSubstr("--packed-cache-bytes; the packed weights are not kept\n"));
  EXPECT_EQ(slurp(file("e.npy")), plain);
  unsetenv("INGOT_CACHE");
  expect_failure(flags + "--packed-cache always --out x", 2, "must be one of off, read, map");
}

TEST_F(DefaultModel, HoldsAnswersToAFormat) {
  std::ofstream(file("s.json"))
      << R"({"type":"object","properties":{"city":{"type":"string","maxLength":12},"capital":{"type":"boolean"}},"required":["city","capital"],"additionalProperties":false})";
  const std::string ask = "run --chat -p 'What is the capital of France?' -n 60 --json ";
  const auto text = [&](const std::string& flags) {
    const Outcome outcome = ingot(ask + flags);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json report = json::parse(outcome.out);
    EXPECT_EQ(report["finish_reason"], "stop") << report;
    return report["text"].get<std::string>();
  };
  const json city = json::parse(text("--strict --schema " + file("s.json")));
  EXPECT_TRUE(city["city"].is_string() && city["capital"].is_boolean() && city.size() == 2) << city;
  EXPECT_THAT(text("--choice London --choice Paris"), ::testing::AnyOf("London", "Paris"));
  EXPECT_THAT(text("--regex '[A-Z][a-z]{2,9}'"), ::testing::MatchesRegex("[A-Z][a-z]+"));
  std::ofstream(file("no.json")) << R"({"properties":{"a":{"uniqueItems":true}}})";
  expect_failure(ask + "--schema " + file("no.json"), 2, "--schema: #/properties/a/uniqueItems is not supported");
  expect_failure(ask + "--regex a --choice b", 2, "at most");
}

}  // namespace
}  // namespace ingot::testing
