#include "cli/sampling_options.h"

#include "cli/options.h"

namespace ingot::cli {

void add_sampling_options(Options command, SamplingArgs& args) {
  command.heading("Sampling");
  SamplingParams& s = args.sampling;
  command.option("-n,--max-tokens", args.max_tokens, "most new tokens").show_default().non_negative();
  command.option("--temperature", s.temperature, "0: greedy").show_default().non_negative();
  command.option("--top-k", s.top_k, "sample from the k most likely; 0: all").show_default();
  command.option("--top-p", s.top_p, "sample from the smallest set with this much probability").show_default();
  command.option("--min-p", s.min_p, "drop tokens below this share of the most likely one").show_default();
  command.option("--presence-penalty", s.presence_penalty, "subtracted for tokens already generated").show_default();
  command.option("--frequency-penalty", s.frequency_penalty, "subtracted per occurrence").show_default();
  command.option("--repetition-penalty", s.repetition_penalty, "above 1: less repetition").show_default();
  command.option("--min-tokens", s.min_tokens, "do not stop before this many tokens").show_default();
  command.option("--seed", args.seed, "the same seed gives the same answer; negative: a random one").show_default();
  command.option("--stop", args.stop, "text that ends the answer; may be given several times");
  command.option("--bad-word", args.bad_words, "text that must not appear; may be given several times");
  command.flag("--ignore-eos", args.ignore_eos, "go on after the end-of-text token");
  command.heading(nullptr);
}

GenerationRequest make_request(const SamplingArgs& args) {
  GenerationRequest request;
  request.sampling = args.sampling;
  request.max_tokens = args.max_tokens;
  request.random_seed = args.seed < 0;
  if (args.seed >= 0) request.sampling.seed = static_cast<uint64_t>(args.seed);
  request.stop = args.stop;
  request.bad_words = args.bad_words;
  request.ignore_eos = args.ignore_eos;
  return request;
}

}  // namespace ingot::cli
