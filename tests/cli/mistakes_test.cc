// What people get wrong at first, or bring along from another program: one line that names the mistake and the remedy.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/slurp.h"
#include "engine/sequences.h"
#include "formats/test_files.h"

namespace ingot::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kLongestLine = 200;

struct Mistake {
  const char* words;    // after `ingot`; $MODEL and $DIR are there
  const char* mistake;  // what the line names
  const char* remedy;   // and what it says to do
};

const Mistake kMistakes[] = {
    // Commands.
    {"", "give a command", "ingot chat"},
    {"fly", "`fly`", "ingot --help"},
    {"sevre", "`sevre`", "did you mean `serve`?"},
    {"show x", "`show`", "`ingot inspect`"},
    {"ls", "`ls`", "`ingot list`"},
    {"generate -p x", "`generate`", "`ingot run`"},
    {"$MODEL", "no command", "ingot chat -m"},
    {"model.gguf", "`model.gguf`", "ingot chat -m model.gguf"},
    // Options that are not there.
    {"run --promt x", "--promt", "did you mean --prompt?"},
    {"run -p x --temprature 1", "--temprature", "did you mean --temperature?"},
    {"run -p x --model-len 5", "--model-len", "--max-model-len"},
    {"run -p x -ngl 99", "-ngl", "--device"},
    {"serve --n-gpu-layers 99", "--n-gpu-layers", "--device"},
    {"serve -hf a/b", "-hf", "-m OWNER/NAME"},
    {"run -p x --repeat-penalty 1.1", "--repeat-penalty", "--repetition-penalty"},
    {"serve --max-num-seqs 4", "--max-num-seqs", "--max-seqs"},
    {"serve --trust-remote-code", "--trust-remote-code", "leave it out"},
    {"serve --tensor-parallel-size 2", "--tensor-parallel-size", "one device"},
    {"run -p x -model y", "-model", "did you mean --model?"},
    {"list --jsn", "--jsn", "did you mean --json?"},
    // Values.
    {"run -p x -n -5", "--max-tokens: must be at least 0, got -5", "ingot run --help"},
    {"run -p x --temperature -1", "--temperature: must be at least 0, got -1", "ingot run --help"},
    {"run -p x --top-p 1.5", "--top-p: must be at most 1, got 1.5", "ingot run --help"},
    {"serve --port 99999", "--port: must be at most 65535, got 99999", "ingot serve --help"},
    {"serve --port http", "--port: must be a whole number, got http", "ingot serve --help"},
    {"run -p x --threads two", "--threads: must be a whole number, got two", "ingot run --help"},
    {"run -p x --threads 1.5", "--threads: must be a whole number, got 1.5", "ingot run --help"},
    {"run -p x --threads 5000", "--threads: must be at most 1024, got 5000", "ingot run --help"},
    {"serve --max-request-bytes lots", "--max-request-bytes", "64MiB"},
    {"run -p x --stop ''", "--stop", "must not be empty"},
    {"run -p x -m $MODEL --device gpu", "--device gpu", "auto, cpu, cuda or metal"},
    {"run --ids 1 -m $MODEL --kv-dtype q4", "--kv-dtype q4", "f16, bf16, int8 or f32"},
    {"run -p x --speculate guess", "--speculate: must be one of auto, off, lookup, suffix, draft, mtp",
     "ingot run --help"},
    {"run -p x --speculate medusa", "--speculate medusa", "--draft-model"},
    {"run -p x --speculate eagle3", "--speculate eagle3", "--draft-model"},
    {"run -p x --speculate draft", "--speculate draft needs a model", "--draft-model"},
    {"run -p x --speculate lookup --draft-model y", "--draft-model is for --speculate draft", "auto"},
    {"bench --draft-acceptance 0.7", "--draft-acceptance", "--speculate"},
    {"bench --speculate lookup --draft-acceptance 7", "--draft-acceptance: must be at most 1, got 7", ""},
    {"bench --batch 0", "--batch: must be at least 1, got 0", "ingot bench --help"},
    // Words in the wrong place.
    {"run -p", "-p needs a value", "ingot run --help"},
    {"run -p --chat", "-p needs a value", "--chat is an option"},
    {"run -p x -p y", "-p was given twice", "ingot run --help"},
    {"run -p x -f y", "give one prompt", "-p, -f or --ids"},
    {"run $MODEL", "is a model, not a prompt", "ingot run -m"},
    {"run hello there", "`there`", "one word too many"},
    {"run </dev/null", "the prompt is empty", ""},
    {"run -p x --system s", "--system", "--chat"},
    {"run -p x --logprobs 2", "--logprobs", "--json"},
    {"serve a.gguf -m b.gguf", "--model excludes MODEL", "ingot serve --help"},
    {"quantize", "IN is required", "ingot quantize --help"},
    // Files and models.
    {"run -f $DIR", "is a folder", "give a file"},
    {"run -f $DIR/nothing.txt", "no such file", "nothing.txt"},
    {"run -f $DIR/latin1.txt", "not UTF-8", "iconv"},
    {"run -m llama3 -p x", "llama3: no such file or folder", "OWNER/NAME"},
};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

TEST(Mistakes, AreNamedWithTheirRemedy) {
  const TempDir dir;
  std::ofstream(dir.path() / "latin1.txt") << "caf\xe9";
  const std::string out = (dir.path() / "out").string(), err = (dir.path() / "err").string();
  for (const Mistake& mistake : kMistakes) {
    std::string words = replaced(mistake.words, "$MODEL", fixture_model("llama-bf16-llama3"));
    words = replaced(words, "$DIR", dir.path().string());
    const std::string input = words.find("</dev/null") == std::string::npos ? " </dev/null" : "";
    const int status = std::system(fmt::format("{} {}{} >{} 2>{}", INGOT_BINARY, words, input, out, err).c_str());
    const std::string said = slurp(err);
    SCOPED_TRACE(words + "\n" + said);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    EXPECT_EQ(slurp(out), "");
    EXPECT_THAT(said, StartsWith("ingot: "));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    EXPECT_THAT(said, HasSubstr(mistake.mistake));
    EXPECT_THAT(said, HasSubstr(mistake.remedy));
    EXPECT_LE(replaced(replaced(said, fixture_model("llama-bf16-llama3"), "M"), dir.path().string(), "D").size(),
              kLongestLine);
  }
}

// Habits of other programs that simply work.
TEST(Mistakes, HabitsThatWork) {
  const TempDir dir;
  const std::string out = (dir.path() / "out").string();
  const std::string model = fixture_model("llama-bf16-llama3");
  const auto ingot = [&](const std::string& words) {
    const int status = std::system(fmt::format("{} >{} 2>&1", words, out).c_str());
    EXPECT_EQ(status, 0) << words << "\n" << slurp(out);
    return slurp(out);
  };
  const std::string program = INGOT_BINARY;
  EXPECT_EQ(ingot(program + " version"), ingot(program + " --version"));
  EXPECT_EQ(ingot(program + " help"), ingot(program + " --help"));
  EXPECT_EQ(ingot(program + " help run"), ingot(program + " run --help"));
  const std::string plain = ingot(program + " run -m " + model +
                                  " --ids 1,2 --max-tokens 3 --temperature 0 --max-model-len 64 --threads 1 --json");
  // Where loading takes a while, how far it is comes before it.
  const auto ids = [](const std::string& text) {
    const size_t begin = std::min(text.find('{'), text.size());
    return text.substr(begin, text.find("usage") - begin);
  };
  EXPECT_EQ(ids(ingot(program + " run -m " + model + " --ids 1,2 -n3 --temp 0 -c 64 -t 1 --json")), ids(plain));
  const auto first_lines = [](const std::string& text) { return text.substr(0, text.find("memory plan")); };
  EXPECT_EQ(first_lines(ingot(program + " inspect " + model)), first_lines(ingot(program + " inspect -m " + model)));
  EXPECT_EQ(ids(ingot("echo 'the cat' | " + program + " run --temp 0 -n 2 --json")),
            ids(ingot(program + " run 'the cat\n' --temp 0 -n 2 --json")));
}

}  // namespace
}  // namespace ingot::testing
