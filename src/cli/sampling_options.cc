#include "cli/sampling_options.h"

#include "cli/options.h"
#include "core/sampling_ranges.h"

namespace ingot::cli {

void add_sampling_options(Options command, SamplingArgs& args) {
  command.heading("Sampling");
  SamplingParams& s = args.sampling;
  command.option("-n,--max-tokens", args.max_tokens, "most new tokens").show_default().non_negative();
  const auto add = [&](const char* flag, auto& value, const char* name, const char* help) {
    command.option(flag, value, help).show_default().within(sampling_range(name));
  };
  add("--temperature", s.temperature, "temperature", "0: greedy");
  add("--top-k", s.top_k, "top_k", "sample from the k most likely; 0 or -1: all");
  add("--top-p", s.top_p, "top_p", "sample from the smallest set with this much probability");
  add("--min-p", s.min_p, "min_p", "drop tokens below this share of the most likely one");
  add("--presence-penalty", s.presence_penalty, "presence_penalty", "subtracted for tokens already generated");
  add("--frequency-penalty", s.frequency_penalty, "frequency_penalty", "subtracted per occurrence");
  add("--repetition-penalty", s.repetition_penalty, "repetition_penalty", "above 1: less repetition");
  add("--min-tokens", s.min_tokens, "min_tokens", "do not stop before this many tokens");
  command.option("--seed", args.seed, "the same seed gives the same answer; negative: a random one").show_default();
  command.option("--stop", args.stop, "text that ends the answer; may be given several times");
  command.option("--bad-word", args.bad_words, "text that must not appear; may be given several times");
  command.flag("--ignore-eos", args.ignore_eos, "go on after the end-of-text token");
  command.heading(nullptr);
  add_structured_options(command, command.at_most_one("Format", "what the answer must be: at most one of these"),
                         args.structured);
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
  request.structured = read_structured(args.structured);
  return request;
}

}  // namespace ingot::cli
