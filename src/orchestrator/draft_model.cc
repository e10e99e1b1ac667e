#include "orchestrator/draft_model.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/ceil_div.h"
#include "core/error.h"
#include "ingot/tokenizer.h"
#include "orchestrator/measured_steps.h"
#include "text/tokenizer_load.h"

namespace ingot {
namespace {

constexpr int64_t kFewRows = 2;         // that every draft begins with: what was drawn last, and the last guess
constexpr int64_t kTokensPerDraft = 4;  // about, that a draft brings
constexpr int64_t kMostDrafts = 128;    // that a reading counts on: answers mostly end before they must
constexpr int32_t kMeasured = 32;       // rows of text that are measured first
constexpr double kQuickUs = 5e3;        // a step that is

}  // namespace

void DraftCache::forget() {
  tokens.clear();
  agreed = remembered = 0;
}

DraftModel::DraftModel(std::unique_ptr<Engine> engine, int64_t vocab)
    : EngineDrafter("the draft model", std::move(engine), vocab) {
  const auto read = [this](int64_t most) {
    const auto rows = static_cast<int32_t>(std::min<int64_t>({most, limits_.max_step_tokens, limits_.max_model_len}));
    if (ceil_div(rows, limits_.block_size) > limits_.num_blocks) return 0.0;
    const double us = measured_step_us(*engine_, 1, rows, false);
    pacer_.set_prefill_us_per_row(us / rows);
    return us;
  };
  // A row of a long text may cost much less than one of a short.
  if (read(kMeasured) < kQuickUs) read(kMostRead);
}

void DraftModel::offer(Guess& guess, int32_t most) {
  const Sequence& sequence = *guess.sequence;
  if (given_up()) return;
  ++offers_;
  guess.most = static_cast<int32_t>(std::min<int64_t>(most, limits_.max_model_len - sequence.length()));
  guess.prior = kPrior;
}

// Reading a text is paid for by all the drafts that follow.
double DraftModel::begin_us(const Sequence& sequence) const {
  const int64_t agreed = sequence.draft_cache ? sequence.draft_cache->agreed : 0;
  const int64_t rows = std::max<int64_t>(0, sequence.known() - agreed - kFewRows);
  const int64_t drafts =
      std::clamp<int64_t>((sequence.request->max_tokens - sequence.generated()) / kTokensPerDraft, 1, kMostDrafts);
  return pacer_.prefill_us_per_row() * static_cast<double>(rows) / static_cast<double>(drafts);
}

void DraftModel::fill(std::span<Guess> guesses) {
  ++uses_;
  offers_ = 0;
  for (Guess& guess : guesses) {
    std::shared_ptr<DraftCache>& cache = guess.sequence->draft_cache;
    if (!cache) cache = std::make_shared<DraftCache>(*this);
    cache->used = uses_;
  }
  std::vector<Line> lines;
  for (Guess& guess : guesses)
    if (Line line{.guess = &guess, .cache = guess.sequence->draft_cache.get()}; begin(line))
      lines.push_back(std::move(line));
  try {
    taken_ = Clock::now();
    reading_us_ = 0;
    std::optional<Flight> flight = submit_text(lines);
    while (flight) {
      std::optional<Flight> next = submit_guesses(lines);
      take(*flight);
      flight = std::move(next);
    }
    failures_ = 0;
  } catch (const std::exception&) {
    while (!flying_.empty()) drop_step();
    for (Guess& guess : guesses) guess.tokens.clear();
    fail();
  }
  for (Guess& guess : guesses) {
    const auto unknown = [this](int32_t token) { return token < 0 || token >= vocab_; };
    guess.tokens.erase(std::ranges::find_if(guess.tokens, unknown), guess.tokens.end());
  }
}

// Goes back to where the cache has the sequence's text. False: it has tokens that the model does not know.
bool DraftModel::begin(Line& line) {
  const Sequence& sequence = *line.guess->sequence;
  DraftCache& cache = *line.cache;
  const std::span<const int32_t> text = sequence.tokens;
  if (cache.blocks.empty()) find_prefix(sequence, cache);
  size_t same = std::min(static_cast<size_t>(cache.agreed), text.size() - 1);  // a row is left that gives a guess
  while (same < cache.tokens.size() && same + 1 < text.size() && cache.tokens[same] == text[same]) ++same;
  cache.tokens.resize(same);
  cache.agreed = static_cast<int64_t>(same);
  line.rows.assign(text.begin() + static_cast<int64_t>(same), text.end());
  return std::ranges::all_of(line.rows, [this](int32_t token) { return token < limits_.vocab; });
}

// Takes over the blocks that another sequence with the same beginning has computed.
void DraftModel::find_prefix(const Sequence& sequence, DraftCache& cache) {
  const int64_t size = limits_.block_size;
  const auto most = std::min<int64_t>(std::ssize(sequence.hashes), (sequence.known() - 1) / size);
  for (int64_t i = 0; i < most; ++i) {
    const std::span<const int32_t> tokens = std::span(sequence.tokens).subspan(i * size, size);
    const int32_t block = pool_.find({sequence.hashes[static_cast<size_t>(i)], i, tokens});
    if (block < 0) break;
    pool_.share(block);
    cache.blocks.push_back(block);
    cache.tokens.insert(cache.tokens.end(), tokens.begin(), tokens.end());
  }
  cache.agreed = std::ssize(cache.tokens);
  cache.remembered = std::ssize(cache.blocks);
}

void DraftModel::remember_blocks(const Sequence& sequence, DraftCache& cache) {
  const int64_t size = limits_.block_size;
  const int64_t full = std::min(std::ssize(sequence.hashes), cache.agreed / size);
  for (; cache.remembered < full; ++cache.remembered) {
    const auto i = static_cast<size_t>(cache.remembered);
    pool_.remember(cache.blocks[i],
                   {sequence.hashes[i], cache.remembered, std::span(sequence.tokens).subspan(i * size, size)});
  }
}

// The text that is new, and the first guess of those whose text ends in the step. The others go on reading with their
// sequence's next draft.
std::optional<DraftModel::Flight> DraftModel::submit_text(std::vector<Line>& lines) {
  // Those that decode come first in a step; and they must not wait for those that read.
  std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.rows.size(); });
  builder_.clear();
  std::vector<Line*> drawing;
  int32_t budget = std::min(kMostRead, limits_.max_step_tokens), sequences = 0;
  for (Line& line : lines) {
    DraftCache& cache = *line.cache;
    const auto count = std::min<int64_t>(budget, std::ssize(line.rows));
    if (count == 0 || sequences == limits_.max_seqs) break;
    if (!extend_blocks(cache, std::ssize(cache.tokens) + count)) continue;
    const std::span<const int32_t> rows = std::span(line.rows).first(static_cast<size_t>(count));
    builder_.add(rows, std::ssize(cache.tokens), cache.blocks);
    if (rows.size() == line.rows.size()) drawing.push_back(&line);
    ++sequences;
    budget -= static_cast<int32_t>(count);
    cache.tokens.insert(cache.tokens.end(), rows.begin(), rows.end());
    cache.agreed = std::ssize(cache.tokens);
    remember_blocks(*line.guess->sequence, cache);
  }
  if (sequences == 0) return std::nullopt;
  const bool reads = builder_.rows() > kFewRows * sequences;
  Flight flight = submit(std::move(drawing));
  flight.reads = reads;
  return flight;
}

// One more guess of those that want more, behind the guess of the step that was submitted last.
std::optional<DraftModel::Flight> DraftModel::submit_guesses(std::vector<Line>& lines) {
  builder_.clear();
  std::vector<Line*> drawing;
  for (Line& line : lines) {
    const int32_t output = std::exchange(line.output, -1);
    const int64_t position = line.cache->agreed + line.asked - 1;
    if (output < 0 || line.asked == line.guess->taken || !extend_blocks(*line.cache, position + 1)) continue;
    const int32_t on_device = -1 - output;
    builder_.add({&on_device, 1}, position, line.cache->blocks);
    drawing.push_back(&line);
  }
  if (drawing.empty()) return std::nullopt;
  return submit(std::move(drawing));
}

// Submits what was built: `lines` are the sequences, or the first of them, whose last row gives a guess.
DraftModel::Flight DraftModel::submit(std::vector<Line*> lines) {
  const std::vector<int32_t>& starts = builder_.step().query_start_loc;
  for (size_t i = 0; i < lines.size(); ++i) {
    builder_.sample(starts[i + 1] - 1, {.temperature = 0});
    lines[i]->output = static_cast<int32_t>(i);
    ++lines[i]->asked;
  }
  const int32_t rows = builder_.rows();
  flying_.push_back(engine_->submit(builder_.finish()));
  return {.lines = std::move(lines), .rows = rows};
}

StepTicket DraftModel::next_ticket() {
  const StepTicket ticket = flying_.front();
  flying_.pop_front();
  return ticket;
}

// Steps are waited for in order, those too that follow one that failed.
void DraftModel::drop_step() {
  try {
    engine_->wait(next_ticket());
  } catch (const std::exception&) {
  }
}

void DraftModel::take(const Flight& flight) {
  const StepResult result = engine_->wait(next_ticket());
  for (size_t i = 0; i < flight.lines.size(); ++i) {
    Line& line = *flight.lines[i];
    std::vector<int32_t>& tokens = line.guess->tokens;
    tokens.push_back(result.rows[i].token);
    if (line.asked > std::ssize(tokens)) line.cache->tokens.push_back(tokens.back());  // it is being computed
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - std::exchange(taken_, Clock::now())).count();
  count_step(flight.rows, flight.reads, seconds);
}

namespace {

// What only one of them has is never guessed; what both have must be the same.
void check_vocabulary(const Tokenizer& target, const Tokenizer& draft, const std::string& model) {
  for (int32_t id = 0; id < std::min(target.vocab_size(), draft.vocab_size()); ++id)
    if (target.token_text(id) != draft.token_text(id))
      throw_error(ErrorKind::declined,
                  "--draft-model {}: its token {} is `{}`, the model's is `{}`; take a draft model with the same "
                  "vocabulary, of the same family for example",
                  model, id, draft.token_text(id), target.token_text(id));
}

// A head has no tokenizer: numbers say whether it was made for the model.
void check_head(const Engine& head, const EngineLimits& target, const std::string& model) {
  const EngineLimits& limits = head.limits();
  if (limits.reads_width != target.state_width)
    throw_error(ErrorKind::declined,
                "--draft-model {}: it reads {} floats of a row's hidden states, the model gives {}; take the head that "
                "was made for this model",
                model, limits.reads_width, target.state_width);
  if (limits.token_ids != target.vocab)
    throw_error(ErrorKind::declined,
                "--draft-model {}: it was made for a model of {} tokens, this one has {}; take the head that was made "
                "for this model",
                model, limits.token_ids, target.vocab);
}

}  // namespace

std::unique_ptr<Engine> load_draft_engine(const LlmOptions& options, const Engine& target,
                                          const Tokenizer* target_tokenizer) {
  const EngineLimits& limits = target.limits();
  EngineOptions engine = options.engine;
  engine.model = options.draft_model;
  engine.tp = engine.pp = 1;  // whole, on the rank that plans
  engine.pp_layers = {};
  engine.group = nullptr;
  engine.device = target.device_name();
  engine.kv_blocks = limits.num_blocks;  // whatever the target has room for can be guessed for
  engine.max_model_len = 0;
  engine.max_seqs = limits.max_seqs;
  engine.max_step_tokens = std::max(std::min(limits.max_step_tokens, EngineDrafter::kMostRead), limits.max_seqs);
  engine.max_logits_rows = 1;
  engine.embeddings = false;
  engine.pooling = "auto";
  engine.progress = {};
  if (std::exchange(engine.gives_states, false)) {  // a head reads them
    engine.state_layers = {};
    engine.head_of = options.engine.model;
  }
  const std::shared_ptr<const Tokenizer> tokenizer = find_tokenizer(engine.model, engine.load_format);
  if (tokenizer && target_tokenizer != nullptr) check_vocabulary(*target_tokenizer, *tokenizer, engine.model);
  std::unique_ptr<Engine> loaded;
  try {
    loaded = Engine::load(engine);
  } catch (const Error& error) {
    throw_error(error.kind(), "--draft-model {}: {}", engine.model, error.what());
  }
  if (!loaded->model().has_head)
    throw_error(ErrorKind::declined, "--draft-model {}: it has no output layer and guesses no tokens", engine.model);
  if (loaded->limits().reads_width > 0) {
    check_head(*loaded, limits, engine.model);
    return loaded;
  }
  if ((!tokenizer || target_tokenizer == nullptr) && loaded->limits().vocab != limits.vocab)
    throw_error(ErrorKind::declined,
                "--draft-model {}: it has {} tokens, the model {}; take a draft model with the same vocabulary",
                engine.model, loaded->limits().vocab, limits.vocab);
  return loaded;
}

}  // namespace ingot
