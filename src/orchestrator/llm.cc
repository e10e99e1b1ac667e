#include "ingot/llm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/sampling_ranges.h"
#include "orchestrator/free_memory.h"
#include "orchestrator/grammars.h"
#include "orchestrator/step_loop.h"
#include "step/validate.h"
#include "text/bad_words.h"
#include "text/tokenizer_load.h"

namespace ingot {
namespace {

constexpr uint64_t kHostBudget = 256ull << 20;
constexpr uint64_t kMinFreeMemory = 128ull << 20;

int64_t list_words(const SamplingParams& p) {
  size_t words = p.stop_token_ids.size() + 2 * p.logit_bias.size() + p.allowed_token_ids.size();
  for (const std::vector<int32_t>& word : p.bad_words) words += word.size() + 1;
  return static_cast<int64_t>(words);
}

// What a request will hold on the host at most: its tokens, their text and their scores. (Grammars are shared, and
// held within bytes of their own.)
uint64_t host_bytes(const Request& request, uint64_t mask_bytes) {
  constexpr uint64_t kGuidedTokenBytes = 32;                                     // a matcher's text, and its way back
  constexpr uint64_t kTokenBytes = sizeof(int32_t) + 8 + sizeof(BlockHash) / 8;  // id, text, hash
  const GenerationRequest& spec = request.spec;
  const auto score_bytes = [](int32_t top) {
    return top < 0 ? 0 : sizeof(TokenScore) + static_cast<uint64_t>(top) * sizeof(TokenLogprob);
  };
  const auto prompt = static_cast<uint64_t>(request.prompt_len), fresh = static_cast<uint64_t>(request.max_tokens);
  const auto width = static_cast<uint64_t>(request.width);
  const uint64_t indexed = spec.speculate ? width * (prompt + fresh) * TokenIndex::kBytesPerToken : 0;
  return sizeof(Request) + indexed + spec.client.size() + spec.cache_salt.size() + spec.stop.bytes() +
         prompt * (kTokenBytes + score_bytes(spec.prompt_logprobs)) +
         width * (sizeof(Sequence) + prompt * sizeof(int32_t) + fresh * (kTokenBytes + score_bytes(spec.logprobs))) +
         (spec.structured.compiled ? width * (mask_bytes + fresh * kGuidedTokenBytes) : 0) +
         static_cast<uint64_t>(request.list_words) * 4;
}

// Whatever ends a text: what the model says, then what its tokenizer says.
std::vector<int32_t> find_end_ids(const Engine& engine, const Tokenizer* tokenizer) {
  std::vector<int32_t> ids = engine.model().eos_ids;
  if (tokenizer != nullptr)
    for (const int32_t id : tokenizer->end_ids())
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= engine.limits().vocab; });
  return ids;
}

constexpr char kNoDraftModel[] = "--speculate draft needs a model that guesses: give --draft-model";
constexpr std::string_view kHeads[] = {"eagle", "medusa"};

std::shared_ptr<Drafter> make_draft_model(const LlmOptions& options, std::unique_ptr<Engine> engine, int64_t vocab) {
  if (options.speculate != Speculation::draft) return nullptr;
  if (!engine) throw_error(ErrorKind::bad_call, kNoDraftModel);
  if (engine->limits().reads_width > 0) return std::make_shared<DraftHead>(std::move(engine), vocab);
  return std::make_shared<DraftModel>(std::move(engine), vocab);
}

void check_ranges(const SamplingParams& p) {
  const std::pair<const char*, double> values[] = {{"temperature", p.temperature},
                                                   {"top_k", p.top_k},
                                                   {"top_p", p.top_p},
                                                   {"min_p", p.min_p},
                                                   {"presence_penalty", p.presence_penalty},
                                                   {"frequency_penalty", p.frequency_penalty},
                                                   {"repetition_penalty", p.repetition_penalty},
                                                   {"min_tokens", p.min_tokens}};
  for (const auto& [name, value] : values)
    if (const auto fault = outside(sampling_range(name), value)) throw_bad_parameter(name, "{}", fault->reason);
}

void check_beams(const GenerationRequest& spec) {
  const SamplingParams& p = spec.sampling;
  const auto refuse = [](const char* name) {
    throw_bad_parameter(name, "cannot be combined with beam search: beams are ranked by the model's logprobs");
  };
  if (p.top_k > 0) refuse("top_k");
  if (p.top_p != 1) refuse("top_p");
  if (p.min_p != 0) refuse("min_p");
  if (p.presence_penalty != 0) refuse("presence_penalty");
  if (p.frequency_penalty != 0) refuse("frequency_penalty");
  if (p.repetition_penalty != 1) refuse("repetition_penalty");
  if (!p.logit_bias.empty()) refuse("logit_bias");
  if (!p.allowed_token_ids.empty()) refuse("allowed_token_ids");
  if (!p.bad_words.empty()) refuse("bad_words");
  if (!spec.stop.empty()) refuse("stop");
  if (spec.structured.kind != StructuredOutput::Kind::none) refuse(spec.structured.param.c_str());
  if (!std::isfinite(spec.length_penalty)) throw_bad_parameter("length_penalty", "must be a number");
}

// What one process has for itself, and other ranks would not know of.
void check_ranks(const LlmOptions& options) {
  const auto refuse = [&](const char* what) {
    throw_error(
        ErrorKind::declined, "{} cannot be combined with {}: leave it out", what,
        options.engine.pp > 1 ? fmt::format("--pp {}", options.engine.pp) : fmt::format("--tp {}", options.engine.tp));
  };
  if (!options.prefix_dir.empty()) refuse("--prefix-dir");
  if (options.engine.host_cache_bytes != 0) refuse("--prefix-ram");
  // Stages have several steps in flight; guesses follow from what the last one gave.
  if (!options.draft_model.empty() && options.engine.pp > 1) refuse("--draft-model");
}

}  // namespace

struct Llm::Impl {
  Impl(std::unique_ptr<Engine> engine_in, std::shared_ptr<const Tokenizer> tokenizer_in, const LlmOptions& options_in,
       std::unique_ptr<Engine> draft_engine)
      : engine(std::move(engine_in)),
        tokenizer(std::move(tokenizer_in)),
        options(options_in),
        limits(engine->limits()),
        end_ids(find_end_ids(*engine, tokenizer.get())),
        grammars(tokenizer.get(), limits.vocab, end_ids),
        tiers(PrefixTiers::open(*engine, options)),
        loop(*engine, *tiers, make_draft_model(options, std::move(draft_engine), limits.vocab), tokenizer.get(),
             grammars, options, static_cast<uint64_t>(options.max_waiting) + static_cast<uint64_t>(limits.max_seqs),
             options.host_budget > 0 ? options.host_budget : kHostBudget) {}

  void take_share(const Request& request);
  void check_kind(GenerationRequest& spec) const;
  void check_counts(const GenerationRequest& spec) const;
  std::unique_ptr<Request> prepare(GenerationRequest spec) const;

  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Tokenizer> tokenizer;
  const LlmOptions options;
  const EngineLimits limits;
  const std::vector<int32_t> end_ids;
  Grammars grammars;
  FreeMemory free_memory;
  std::atomic<uint64_t> arrivals{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<bool> draining{false};
  std::unique_ptr<PrefixTiers> tiers;
  StepLoop loop;  // last: its thread uses the rest
};

// Takes a place and memory for a request, or refuses it because it cannot be served now.
void Llm::Impl::take_share(const Request& request) {
  if (draining) throw_error(ErrorKind::overloaded, "the server is shutting down and takes no new requests");
  const uint64_t least = options.min_free_memory > 0 ? options.min_free_memory : kMinFreeMemory;
  const uint64_t free = free_memory.bytes();
  if (free > 0 && free < least)
    throw_error(ErrorKind::overloaded, "the system has only {} of memory left", format_bytes(free));
  const std::string& client = request.spec.client;
  if (!loop.places.take(client, 1)) {
    if (loop.places.used() < loop.places.limit())
      throw_error(ErrorKind::overloaded,
                  "this client has its share of the {} requests that are served or wait at a time",
                  loop.places.limit());
    throw_error(ErrorKind::overloaded, "{} requests are being served or waiting, which is the limit",
                loop.places.limit());
  }
  if (!loop.host_bytes.take(client, request.host_bytes)) {
    loop.places.give(client, 1);
    throw_error(ErrorKind::overloaded, "the requests being served hold {} of the {} budgeted for them",
                format_bytes(loop.host_bytes.used()), format_bytes(loop.host_bytes.limit()));
  }
}

void Llm::Impl::check_counts(const GenerationRequest& spec) const {
  if (spec.n < 1) throw_bad_parameter("n", "is {}, but must be at least 1", spec.n);
  if (spec.best_of != 0 && spec.best_of < spec.n)
    throw_bad_parameter("best_of", "is {}, but must be at least n = {}", spec.best_of, spec.n);
  const int32_t width = std::max(spec.n, spec.best_of);
  const int32_t most = spec.beam_search ? std::min(limits.max_top / 2, limits.max_seqs) : limits.max_seqs;
  if (width > most)
    throw_bad_parameter(spec.best_of > spec.n ? "best_of" : "n", "is {}, but at most {} are possible here", width,
                        most);
  if (spec.max_tokens < 0) throw_bad_parameter("max_tokens", "is {}, but cannot be negative", spec.max_tokens);
  if (spec.max_tokens == 0 && width > 1) throw_bad_parameter("n", "must be 1 when max_tokens is 0");
  for (const auto& [name, value] :
       {std::pair("logprobs", spec.logprobs), std::pair("prompt_logprobs", spec.prompt_logprobs)})
    if (value > limits.max_top)
      throw_bad_parameter(name, "is {}, but at most {} alternatives are reported", value, limits.max_top);
}

void Llm::Impl::check_kind(GenerationRequest& spec) const {
  if (!spec.embed) {
    if (!engine->model().has_head)
      throw_error(ErrorKind::declined, "this model has no output layer and makes no text: ask it for embeddings");
    return;
  }
  if (!limits.pooling)
    throw_error(ErrorKind::declined,
                "this model was not made for embeddings: start with --embeddings to have them all the same, or load a "
                "model that was");
  spec.max_tokens = 0;
  spec.sampling = {};
}

std::unique_ptr<Request> Llm::Impl::prepare(GenerationRequest spec) const {
  check_kind(spec);
  check_counts(spec);
  check_ranges(spec.sampling);
  const auto length = static_cast<int64_t>(spec.prompt.size());
  if (length == 0) throw_error(ErrorKind::bad_call, "the prompt is empty: there is nothing to continue");
  for (size_t i = 0; i < spec.prompt.size(); ++i)
    if (spec.prompt[i] < 0 || spec.prompt[i] >= limits.vocab)
      throw_bad_parameter("prompt", "has the token {} at index {}, outside the vocabulary of {}", spec.prompt[i], i,
                          limits.vocab);
  if (length + (spec.max_tokens > 0 ? 1 : 0) > limits.max_model_len)
    throw_error(ErrorKind::bad_call, "the prompt has {} tokens, but the context holds {} tokens including the answer",
                length, limits.max_model_len);
  if (!tokenizer && !(spec.stop.empty() && spec.bad_words.empty()))
    throw_error(ErrorKind::bad_call, "stop strings and bad words need a tokenizer, and this model has none");
  if (tokenizer)
    for (std::vector<int32_t>& word : bad_word_ids(*tokenizer, spec.bad_words))
      spec.sampling.bad_words.push_back(std::move(word));
  if (spec.beam_search) check_beams(spec);

  auto request = std::make_unique<Request>();
  request->prompt_len = length;
  request->max_tokens = std::min(spec.max_tokens, limits.max_model_len - length);
  request->width = std::max(spec.n, spec.best_of);
  request->keep_all = spec.beam_search || request->width > spec.n;
  request->named_stop_ids = spec.sampling.stop_token_ids;
  if (!spec.ignore_eos || spec.structured.compiled)
    for (const int32_t id : end_ids)
      if (std::find(request->named_stop_ids.begin(), request->named_stop_ids.end(), id) ==
          request->named_stop_ids.end())
        spec.sampling.stop_token_ids.push_back(id);
  if (spec.random_seed) spec.sampling.seed = random_word();
  if (spec.id.empty()) spec.id = fmt::format("{:016x}", random_word());
  StepValidator(limits).check_sampling(spec.sampling, 0);
  request->list_words = list_words(spec.sampling);
  if (request->list_words > limits.max_list_words / 2)
    throw_error(
        ErrorKind::bad_call,
        "the token lists of the request (stop tokens, biases, bad words) have {} entries, at most {} are possible",
        request->list_words, limits.max_list_words / 2);
  request->unsalted_blocks = std::clamp<int64_t>(spec.shared_tokens, 0, length) / limits.block_size;
  request->spec = std::move(spec);
  request->keeps_rows = request->spec.embed && limits.pooling.keeps();
  request->host_bytes = host_bytes(*request, static_cast<uint64_t>(limits.vocab) / 8);
  if (request->spec.embed) request->host_bytes += static_cast<uint64_t>(engine->model().hidden) * sizeof(float);
  return request;
}

void choose_speculation(LlmOptions& options, const std::string& kind, const std::string& draft_model) {
  const bool has_model = !draft_model.empty();
  if (kind == "off") {
    options.speculate = Speculation::off;
  } else if (kind == "lookup") {
    options.speculate = Speculation::lookup;
  } else if (kind == "draft" || (kind == "auto" && has_model)) {
    if (!has_model) throw_error(ErrorKind::bad_call, kNoDraftModel);
    options.speculate = Speculation::draft;
    options.draft_model = draft_model;
    return;
  } else if (kind == "mtp") {
    options.speculate = Speculation::mtp;
  } else if (kind == "auto" || kind == "suffix") {
    options.speculate = Speculation::suffix;
  } else if (kind == "eagle3") {
    throw_error(ErrorKind::bad_call,
                "--speculate eagle3: an EAGLE-3 head is given like any other model that guesses: --draft-model, with "
                "--speculate draft, which is what auto means beside it");
  } else if (std::ranges::find(kHeads, kind) != std::end(kHeads)) {
    throw_error(ErrorKind::declined,
                "--speculate {}: of heads that guess EAGLE-3's (--draft-model) and a model's own MTP layers (mtp) are "
                "run here; or take a small model with the same vocabulary",
                kind);
  } else {
    throw_error(ErrorKind::bad_call, "--speculate {}: must be auto, off, lookup, suffix, draft or mtp", kind);
  }
  if (has_model)
    throw_error(ErrorKind::bad_call,
                "--draft-model is for --speculate draft, which is what auto means beside it; "
                "--speculate {} does without",
                kind);
}

namespace {

// Has the model give its states, where what guesses is a head.
void expect_head(LlmOptions& options) {
  try {
    const std::optional<HeadNeeds> head = Engine::head_needs(options.draft_model, options.engine.model);
    if (!head) return;
    options.engine.gives_states = true;
    options.engine.state_layers = head->state_layers;
  } catch (const Error& error) {
    throw_error(error.kind(), "--draft-model {}: {}", options.draft_model, error.what());
  }
}

}  // namespace

std::unique_ptr<Llm> Llm::load(const LlmOptions& given) {
  LlmOptions options = given;
  if (options.speculate == Speculation::mtp) {
    options.speculate = Speculation::draft;
    options.draft_model = options.engine.model;
    if (!Engine::head_needs(options.draft_model, options.engine.model))
      throw_error(ErrorKind::declined,
                  "--speculate mtp: {} has no MTP layers; take a model that guesses: --draft-model",
                  options.engine.model);
  }
  if (options.engine.ranks() > 1) check_ranks(options);
  if (!options.prefix_dir.empty() && options.engine.host_cache_bytes == 0) options.engine.host_cache_bytes = -1;
  // Without a tokenizer the model still serves token ids.
  std::shared_ptr<const Tokenizer> tokenizer = find_tokenizer(options.engine.model, options.engine.load_format);
  const bool drafts = options.speculate == Speculation::draft && !options.draft_model.empty();
  if (drafts) expect_head(options);
  std::unique_ptr<Engine> engine = Engine::load(options.engine), draft_engine;
  if (drafts) draft_engine = load_draft_engine(options, *engine, tokenizer.get());
  return std::make_unique<Llm>(std::move(engine), std::move(tokenizer), options, std::move(draft_engine));
}

Llm::Llm(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer, const LlmOptions& options,
         std::unique_ptr<Engine> draft_engine)
    : impl_(std::make_unique<Impl>(std::move(engine), std::move(tokenizer), options, std::move(draft_engine))) {}

Llm::~Llm() = default;

void Llm::compile(StructuredOutput& structured, const std::atomic<bool>* cancelled) {
  impl_->grammars.compile(structured, cancelled);
}

std::shared_ptr<Generation> Llm::submit(GenerationRequest spec, std::function<void()> notify) {
  compile(spec.structured);
  std::unique_ptr<Request> request = impl_->prepare(std::move(spec));
  try {
    impl_->take_share(*request);
  } catch (...) {
    ++impl_->refused;
    throw;
  }
  request->arrival = ++impl_->arrivals;
  request->submitted = Clock::now();
  request->generation = std::make_shared<LiveGeneration>(
      request->spec.id, request->spec.n, [loop = &impl_->loop] { loop->wake(); }, std::move(notify));
  std::shared_ptr<Generation> generation = request->generation;
  impl_->loop.add(std::move(request));
  return generation;
}

void Llm::drain() { impl_->draining = true; }
bool Llm::idle() const { return impl_->loop.places.used() == 0; }

double Llm::retry_after_s() const {
  // About the time until the present requests are done, as far as finished ones tell; a client should not ask at once.
  const LlmStats stats = impl_->loop.stats();
  const double each = stats.e2e_s.total > 0 ? stats.e2e_s.sum / static_cast<double>(stats.e2e_s.total) : 1.0;
  const double rounds = static_cast<double>(impl_->loop.places.used()) / impl_->limits.max_seqs;
  return std::clamp(std::ceil(each * rounds), 1.0, 60.0);
}

LlmStats Llm::stats() const {
  LlmStats stats = impl_->loop.stats();
  stats.refused = impl_->refused;
  return stats;
}

std::vector<std::string> Llm::check_integrity() { return impl_->loop.check_integrity(); }
const EngineLimits& Llm::limits() const { return impl_->limits; }
const ModelInfo& Llm::model() const { return impl_->engine->model(); }
const MemoryUse& Llm::memory() const { return impl_->engine->memory(); }
const Tokenizer* Llm::tokenizer() const { return impl_->tokenizer.get(); }
std::string Llm::device_description() const { return impl_->engine->device_description(); }

}  // namespace ingot
