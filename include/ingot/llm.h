#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ingot/answer_frame.h"
#include "ingot/engine.h"
#include "ingot/step.h"

// The native orchestrator: requests in, text out. Continuous batching, prefix cache, preemption, cancellation. It uses
// the engine only through Step. Every method may be called from any thread unless it says otherwise.
namespace ingot {

class Tokenizer;
namespace grammar {
class Grammar;
}

// Whether a step may verify tokens that were guessed, which changes nothing but the speed.
enum class Speculation : uint8_t {
  off,
  lookup,  // guesses from the request's own text
  suffix,  // and from what the client's last answers said
  draft,   // by a smaller model, or a head
  mtp,     // by layers of the model's own; its folder is the draft_model then
};

struct LlmOptions {
  EngineOptions engine;
  int32_t max_waiting = 1024;  // requests beyond those that can run; more are refused (ErrorKind::overloaded)
  double target_step_ms = 0;   // longest step while streams are running; 0: 1.6 times a step without prefill
  bool prefix_caching = true;  // reuse the KV blocks of equal prompt beginnings
  // KV blocks that leave the device go to host memory (engine.host_cache_bytes), and every full block to files in this
  // folder, where later processes find them; empty: none. A folder that is something else is left alone.
  std::string prefix_dir;
  uint64_t prefix_dir_bytes = uint64_t{10} << 30;     // of all files; the least recently used make room
  std::function<void(const std::string& line)> warn;  // when files cannot be used; empty: a line on stderr
  bool overlap = true;                                // submit a step while the one before it runs
  bool tune = false;                                  // while there is nothing to do: Engine::tune()
  Speculation speculate = Speculation::suffix;
  std::string draft_model;   // Speculation::draft: a GGUF file or a Hugging Face folder with the same vocabulary
  int32_t draft_tokens = 0;  // guess so many whatever they cost, for tests and measurements; 0: as many as pay
  // Measurements alone: guesses come true with this chance, whatever is drawn; answers mean nothing then.
  std::optional<double> draft_acceptance;
  uint64_t host_budget = 0;      // bytes that waiting and running requests may hold on the host; 0: 256 MiB
  uint64_t min_free_memory = 0;  // refuse new requests while the system has less than this free; 0: 128 MiB
};

// Sets `speculate` and `draft_model` as people name them: auto (a draft model where there is one, else suffix), off,
// lookup, suffix or draft. Throws Error where the two do not go together, or guesses of that kind are not made here.
void choose_speculation(LlmOptions& options, const std::string& kind, const std::string& draft_model);

// Texts that end a choice, made ready for a search that is linear in the text. Copies share one table: the prompts and
// the choices of a request hold it once.
class StopStrings {
 public:
  struct Table;

  StopStrings() = default;
  StopStrings(std::vector<std::string> texts);  // empty ones stop nothing
  StopStrings(std::initializer_list<std::string> texts) : StopStrings(std::vector<std::string>(texts)) {}

  bool empty() const { return table_ == nullptr; }
  uint64_t bytes() const;  // of memory
  std::vector<std::string> texts() const;
  const Table* table() const { return table_.get(); }

 private:
  std::shared_ptr<const Table> table_;
};

// How text for people is sampled where neither they nor the model's makers (ModelInfo::sampling) say otherwise.
inline const SamplingParams kChatSampling{.temperature = 0.7f, .top_p = 0.95f};

// What the text of an answer must be. End of text is allowed exactly where it is complete.
struct StructuredOutput {
  enum class Kind : uint8_t {
    none,            // anything
    json_object,     // any JSON object
    json_schema,     // text: the schema
    regex,           // text: the expression, of the whole answer
    choice,          // one of `choices`
    gbnf,            // text: the grammar
    structural_tag,  // text: JSON; free text with islands of a schema
    free_text,       // anything, behind the reasoning of `frame`, in which there is no other
  };
  Kind kind = Kind::none;
  std::string text;
  std::vector<std::string> choices;
  bool strict = false;               // of JSON: keys in the schema's order, numbers in their shortest form
  std::string param = "structured";  // what errors call it
  std::string cache_salt;            // compiled grammars are shared only under the same salt, as prompts are
  AnswerFrame frame;                 // around the text; of no use to Kind::none

  // Set by Llm::compile(), which takes `text` and `choices`. Copies share it.
  std::shared_ptr<grammar::Grammar> compiled;
};

// A request. `sampling.seed`, `sampling.min_tokens` and `sampling.stop_token_ids` are taken from here, as the rest of
// SamplingParams is; the model's own end tokens are added unless ignore_eos.
struct GenerationRequest {
  std::string id;               // for logs and errors; empty: one is made
  std::vector<int32_t> prompt;  // token ids, at least one
  SamplingParams sampling;
  bool random_seed = false;            // true: sampling.seed is replaced by a random one. Choice i draws with seed + i
  int64_t max_tokens = 16;             // new tokens a choice; more than the context leaves is cut to that
  int32_t n = 1;                       // choices returned
  int32_t best_of = 0;                 // choices generated, the n most likely (per token) returned; 0: n
  bool beam_search = false;            // the n best of a beam of max(n, best_of); sampling parameters must be greedy
  double length_penalty = 1.0;         // beams are ranked by logprob / length^length_penalty
  bool early_stopping = false;         // a beam search ends as soon as it has enough finished beams
  StopStrings stop;                    // cut off unless include_stop
  std::vector<std::string> bad_words;  // texts that must not be generated; tokenized here
  StructuredOutput structured;         // holds ignore_eos off; not with beam_search
  int64_t thinking_budget = -1;        // tokens of the reasoning in structured.frame, then it is closed; -1: any number
  bool embed = false;  // nothing is generated: the only choice gets the prompt's vector (EngineLimits::pooling)
  bool include_stop = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;  // special tokens leave no text
  int32_t logprobs = -1;            // alternatives reported for each new token; -1: no logprobs at all
  int32_t prompt_logprobs = -1;     // the same for each prompt token; such a request does not read the prefix cache
  bool report_reading = false;      // the reader is woken by each step that reads of the prompt, too: summary() tells
  int32_t priority = 0;             // lower runs first; equal: clients in turn, each in the order of its requests
  bool speculate = true;            // as far as LlmOptions::speculate goes
  std::string client;               // whose request it is: sequences, places and memory are shared fairly among clients
  std::string cache_salt;           // prompts meet in the prefix cache only under the same salt ...
  int64_t shared_tokens = 0;        // ... but for so many tokens of their beginning, which are no secret
  std::optional<std::chrono::steady_clock::time_point> deadline;  // then it ends with FinishReason::timeout
};

// no_token: what the request forbids (allowed_token_ids, bad_words, structured, end tokens before min_tokens) left the
// sampler nothing to choose from; the choice has the tokens before that.
enum class FinishReason : uint8_t { none, stop, length, no_token, cancelled, timeout, error };
const char* to_string(FinishReason reason);  // "stop", "length", ...; "" for none

// A token with its logprob under the raw logits, as it was reported by the engine.
struct TokenScore {
  int32_t token = -1;
  float logprob = 0.0f;
  int32_t rank = 0;  // 1: most likely; 0: not scored (the first prompt token)
  std::vector<TokenLogprob> top;
};

// What a choice gained since the last take().
struct ChoiceDelta {
  int32_t index = 0;
  std::string text;                // whole characters; never the beginning of a stop string
  std::vector<int32_t> token_ids;  // may run ahead of the text
  std::vector<TokenScore> scores;  // one a token when logprobs were asked for
  std::vector<float> embedding;    // GenerationRequest::embed
  FinishReason finish = FinishReason::none;
  std::variant<std::monostate, int32_t, std::string> stop_reason;  // the stop token or stop string that ended it
};

// Facts about a request: how far its prompt is, and since when, from the first step on; the prompt's from its first
// token on; all of them once it is done.
struct GenerationSummary {
  int64_t prompt_tokens = 0;
  int64_t read_tokens = 0;        // of the prompt, computed or found in the cache so far
  int64_t cached_tokens = 0;      // of the prompt, found in the prefix cache
  int64_t completion_tokens = 0;  // of every choice generated
  int64_t draft_tokens = 0;       // guessed ...
  int64_t accepted_tokens = 0;    // ... and drawn
  int32_t preemptions = 0;
  double queue_s = 0;    // until its first step
  double prefill_s = 0;  // from there until its first token, or until now
  double decode_s = 0;   // from there until it was done
  double first_token_s() const { return queue_s + prefill_s; }
  std::string error;        // why it failed; empty otherwise
  std::string error_param;  // the parameter of the request that is at fault; empty: none
};

// One request being served: the reader's end. Deltas of a choice that were not taken yet are merged into one, so a slow
// reader costs no more memory than the answer itself.
class Generation {
 public:
  virtual ~Generation() = default;
  virtual const std::string& id() const = 0;

  // What is new, one entry a choice that has something. The order within a choice is the order of generation.
  virtual std::vector<ChoiceDelta> take() = 0;
  // True once everything was generated (what was not taken yet still can be).
  virtual bool done() const = 0;
  // Waits until take() or done() has something new, or the time is over; false in that case.
  virtual bool wait(std::chrono::milliseconds most) = 0;
  // Ends the request soon, at any stage; its blocks are freed and every choice gets FinishReason::cancelled.
  virtual void cancel() = 0;
  virtual GenerationSummary summary() const = 0;
  // Scores of the prompt's tokens (GenerationRequest::prompt_logprobs); complete when the first delta is there.
  virtual std::vector<TokenScore> prompt_scores() const = 0;
};

// Counts of values in fixed buckets, as Prometheus has them.
struct Histogram {
  std::vector<double> bounds;    // upper bounds, ascending
  std::vector<uint64_t> counts;  // one more than bounds; not cumulative
  double sum = 0;
  uint64_t total = 0;
};

// A picture of the orchestrator's state and its totals since the start.
struct LlmStats {
  int32_t running = 0;  // requests that hold blocks
  int32_t waiting = 0;
  int64_t blocks_total = 0;
  int64_t blocks_used = 0;    // held by running requests
  int64_t blocks_cached = 0;  // held by nobody, with content that a prompt may find again; the rest are free
  uint64_t steps = 0;
  int32_t most_in_flight = 0;  // steps, at any time so far
  uint64_t failed_steps = 0;
  uint64_t failed_in_a_row = 0;  // steps since the last one that came through
  std::string failure;           // of the last of them
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;  // of requests that reached their first token
  uint64_t generation_tokens = 0;
  uint64_t prefix_queries = 0;     // prompt tokens looked up
  uint64_t prefix_hits = 0;        // of those, found
  uint64_t prefix_host_hits = 0;   // of those, in host memory
  uint64_t prefix_disk_hits = 0;   // or in files
  int64_t host_blocks_total = 0;   // blocks of host memory,
  int64_t host_blocks_kept = 0;    // and those with content
  uint64_t host_saved_bytes = 0;   // from the device,
  uint64_t host_loaded_bytes = 0;  // and back
  uint64_t disk_written_bytes = 0, disk_read_bytes = 0;
  uint64_t disk_bytes = 0;                     // of all files, about
  uint64_t blocks_damaged = 0;                 // files that were not what had been written
  uint64_t blocks_lost = 0;                    // that had to make room before they were anywhere else
  uint64_t drafts = 0;                         // guesses that were verified,
  uint64_t draft_tokens = 0;                   // their tokens,
  uint64_t accepted_tokens = 0;                // and those that were drawn
  std::vector<uint64_t> accepted_at_position;  // of those, by the place in their draft
  uint64_t draft_steps = 0;                    // of the draft model,
  double drafting_s = 0;                       // and what they took
  uint64_t refused = 0;                        // queue full, memory short, draining
  uint64_t finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
  uint64_t host_bytes = 0;  // held by waiting and running requests
  Histogram first_token_s, inter_token_s, e2e_s, queue_s, prefill_s, decode_s;
  Histogram step_tokens, request_prompt_tokens, request_generation_tokens, request_max_tokens, request_n;
  Histogram step_s;      // device time of a step
  Histogram step_gap_s;  // device idle between two steps that follow each other
};

class Llm {
 public:
  // Loads the model and starts the step loop. Throws Error.
  static std::unique_ptr<Llm> load(const LlmOptions& options);
  // Takes over an engine; `tokenizer` may be null (then no text, stop strings or bad words). `draft_engine`: of the
  // draft model, with the vocabulary of the other.
  Llm(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer, const LlmOptions& options,
      std::unique_ptr<Engine> draft_engine = nullptr);
  ~Llm();  // cancels what is running

  // Makes structured output ready, in the calling thread: about a millisecond, never long; submit() does it for what is
  // not. Grammars of equal text are compiled once, while they are among the latest. Throws Error: bad_call when it
  // cannot be held to (the message names the place), cancelled soon after `cancelled` is set.
  void compile(StructuredOutput& structured, const std::atomic<bool>* cancelled = nullptr);

  // Queues a request. Throws Error: bad_call when it can never be served (the message names the parameter and the
  // limit), overloaded when it cannot be now (retry_after_s() says when to try again). `notify`, if any, is called from
  // the step loop each time the generation has something new: it must be quick and not throw.
  std::shared_ptr<Generation> submit(GenerationRequest request, std::function<void()> notify = {});

  // From now on new requests are refused; running ones finish. Returns at once.
  void drain();
  // True when nothing is waiting or running.
  bool idle() const;
  double retry_after_s() const;

  LlmStats stats() const;
  // Checks block pool, block tables and hashes against each other between two steps. Empty: all is well; else one line
  // a fault.
  std::vector<std::string> check_integrity();

  const EngineLimits& limits() const;
  const ModelInfo& model() const;
  const MemoryUse& memory() const;
  const Tokenizer* tokenizer() const;
  std::string device_description() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
