#include "orchestrator/draft_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/ceil_div.h"
#include "orchestrator/measured_steps.h"
#include "orchestrator/speculator.h"

namespace ingot {
namespace {

constexpr double kHeadPrior = 0.6;      // the chance of a guess, for a sequence of which nothing is known
constexpr int32_t kMostHeadRows = 512;  // of a step
constexpr int64_t kFewHeadRows = 4;     // that every draft begins with: those of the tokens that came with the last
constexpr int64_t kKeptStates = 32;           // positions of which the states stay when they were read, to begin with anew
constexpr int32_t kMeasuredRows = 64;
constexpr int64_t kDraftsCounted = 32;  // that reading a text counts on
constexpr double kStale = 1 << 16;      // offers that nobody took, until what was measured would count for nothing
constexpr int kMostHeadFailures = 3;    // in a row; then it is left alone

}  // namespace

HeadCache::HeadCache(DraftHead& owner) : head(owner) { head.caches_.push_back(this); }

HeadCache::~HeadCache() {
  head.release(*this);
  std::erase(head.caches_, this);
}

// What is left is moved: so this is not for every step.
void HeadCache::forget_before(int64_t position) {
  states.erase(states.begin(), states.begin() + (position - from) * head.state_width());
  from = position;
}

int64_t HeadCache::end() const { return from + std::ssize(states) / head.state_width(); }

DraftHead::DraftHead(std::unique_ptr<Engine> engine, int64_t vocab)
    : engine_(std::move(engine)),
      limits_(engine_->limits()),
      vocab_(vocab),
      pool_(limits_.num_blocks, limits_.block_size),
      builder_(limits_.block_size),
      pacer_(0, limits_.max_seqs, limits_.max_step_tokens) {
  measure();
}

DraftHead::~DraftHead() = default;

// What steps take, before anybody waits for one: a price that is wrong at first would never be corrected.
void DraftHead::measure() {
  const auto most = std::min<int64_t>({limits_.max_seqs, limits_.num_blocks, Pacer::kMostRows});
  for (int32_t sequences = 1; sequences <= most; sequences *= 2)
    pacer_.learn_rows(sequences, measured_step_us(*engine_, sequences, 1, true, limits_.state_width));
  const auto rows = static_cast<int32_t>(
      std::min<int64_t>({kMeasuredRows, limits_.max_step_tokens, limits_.max_model_len, limits_.max_sample_rows}));
  if (ceil_div(rows, limits_.block_size) > limits_.num_blocks) return;
  pacer_.set_prefill_us_per_row(measured_step_us(*engine_, 1, rows, false, limits_.reads_width) / rows);
}

void DraftHead::take_states(Sequence& sequence, int64_t position, std::span<const float> states) {
  const int64_t width = limits_.reads_width, rows = std::ssize(states) / width;
  std::shared_ptr<HeadCache>& cache = sequence.head_cache;
  if (!cache) cache = std::make_shared<HeadCache>(*this);
  if (cache->states.empty() || position > cache->end()) {
    cache->states.clear();
    cache->from = position;
  }
  // What was computed again is what it was.
  const int64_t known = cache->end() - position;
  if (known >= rows) return;
  cache->states.insert(cache->states.end(), states.begin() + known * width, states.end());
  if (cache->end() - cache->from > 2 * kMostStates) cache->forget_before(cache->end() - kMostStates);
}

void DraftHead::offer(Guess& guess, int32_t most) {
  const Sequence& sequence = *guess.sequence;
  const HeadCache* cache = sequence.head_cache.get();
  if (failures_ >= kMostHeadFailures || cache == nullptr || cache->end() < sequence.known() - 1) return;
  ++offers_;
  guess.most = static_cast<int32_t>(std::min<int64_t>(most, limits_.max_model_len - kKeptStates));
  guess.prior = kHeadPrior;
}

double DraftHead::token_us(int32_t sequences) const {
  const double age = std::max(0.5, 1 - static_cast<double>(offers_) / kStale);
  return sequences == 0 ? 0 : age * pacer_.rows_us(std::min(sequences, Pacer::kMostRows));
}

// Reading a text is paid for by all the drafts that follow.
double DraftHead::begin_us(const Sequence& sequence) const {
  const HeadCache* cache = sequence.head_cache.get();
  if (cache == nullptr) return 0;
  const int64_t rows = cache->end() - std::max(cache->next, cache->from) - kFewHeadRows;
  return rows <= 0 ? 0 : pacer_.prefill_us_per_row() * static_cast<double>(rows) / kDraftsCounted;
}

void DraftHead::fill(std::span<Guess> guesses) {
  ++uses_;
  offers_ = 0;
  reading_us_ = 0;
  std::vector<Line> lines;
  for (Guess& guess : guesses) {
    Line line{.guess = &guess, .cache = guess.sequence->head_cache.get()};
    if (line.cache == nullptr) continue;
    line.cache->used = uses_;
    if (begin(line)) lines.push_back(line);
  }
  try {
    for (bool more = read(lines); more;) more = guess_more(lines);
    failures_ = 0;
  } catch (const std::exception&) {
    ++failures_;
    for (Guess& guess : guesses) guess.tokens.clear();
    for (HeadCache* cache : caches_) release(*cache);
    pool_.forget_all();
  }
}

// Which positions are read next: those whose states and next tokens are known. The last is read again where there is
// nothing new, for the guess that it gives. False: the states of the last are not there.
bool DraftHead::begin(Line& line) {
  HeadCache& cache = *line.cache;
  const int64_t last = line.guess->sequence->known() - 2;  // the token behind it is the newest
  if (last < cache.from || cache.end() <= last) return false;
  cache.next = std::min(cache.next, last);
  const bool too_long = last + Speculator::kMostDraft + 1 - cache.begin > limits_.max_model_len;
  if (cache.next < cache.from || cache.blocks.empty() || too_long) {
    release(cache);
    cache.begin = cache.next = std::max(cache.from, last + 1 - (limits_.max_model_len - Speculator::kMostDraft) / 2);
    if (cache.begin > last) return false;
  }
  line.first = cache.next;
  line.last = last;
  return true;
}

// Where there is no block, those of whoever guessed longest ago are taken.
bool DraftHead::extend_blocks(HeadCache& cache, int64_t rows) {
  const auto wanted = static_cast<size_t>(ceil_div(rows, limits_.block_size));
  while (cache.blocks.size() < wanted) {
    if (const int32_t block = pool_.allocate(); block >= 0) {
      cache.blocks.push_back(block);
      continue;
    }
    HeadCache* oldest = nullptr;
    for (HeadCache* other : caches_)
      if (other->used != uses_ && !other->blocks.empty() && (oldest == nullptr || other->used < oldest->used))
        oldest = other;
    if (oldest == nullptr) return false;
    release(*oldest);
  }
  return true;
}

void DraftHead::release(HeadCache& cache) {
  pool_.release_all(cache.blocks);
  cache.begin = cache.next = 0;
}

// The positions that are new, and the first guess of the sequences whose last is among them. The others go on reading
// with their next draft.
bool DraftHead::read(std::vector<Line>& lines) {
  // Those that decode come first in a step; and they must not wait for those that read.
  std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.last - line.first; });
  builder_.clear();
  Step& step = builder_.step();
  std::vector<Line*> drawing;
  int64_t room = std::min(kMostHeadRows, limits_.max_step_tokens);
  int32_t sequences = 0;
  bool reads = false;
  for (Line& line : lines) {
    HeadCache& cache = *line.cache;
    const int64_t count = std::min(room, line.last + 1 - line.first);
    if (count == 0 || sequences == limits_.max_seqs) break;
    if (!extend_blocks(cache, line.first + count - cache.begin)) continue;
    const std::span<const int32_t> text = line.guess->sequence->tokens;
    builder_.add(text.subspan(static_cast<size_t>(line.first + 1), static_cast<size_t>(count)),
                 line.first - cache.begin, cache.blocks);
    const auto states = cache.states.begin() + (line.first - cache.from) * limits_.reads_width;
    step.states.insert(step.states.end(), states, states + count * limits_.reads_width);
    cache.next = line.first + count;
    if (cache.next > line.last) drawing.push_back(&line);
    if (cache.next - cache.from > 4 * kKeptStates) cache.forget_before(cache.next - kKeptStates);
    reads |= count > kFewHeadRows;
    room -= count;
    ++sequences;
  }
  if (sequences == 0) return false;
  step.given_width = static_cast<int32_t>(limits_.reads_width);
  run(drawing, reads);
  return true;
}

// One more guess of those that want more, from what their last one left.
bool DraftHead::guess_more(std::vector<Line>& lines) {
  builder_.clear();
  Step& step = builder_.step();
  std::vector<Line*> drawing;
  for (Line& line : lines) {
    const int32_t output = std::exchange(line.output, -1);
    const std::vector<int32_t>& tokens = line.guess->tokens;
    const int64_t row = line.last + std::ssize(tokens) - line.cache->begin;
    if (output < 0 || std::ssize(tokens) == line.guess->taken || !extend_blocks(*line.cache, row + 1)) continue;
    builder_.add({&tokens.back(), 1}, row, line.cache->blocks);
    const auto states = own_.begin() + output * limits_.state_width;
    step.states.insert(step.states.end(), states, states + limits_.state_width);
    drawing.push_back(&line);
  }
  if (drawing.empty()) return false;
  step.given_width = static_cast<int32_t>(limits_.state_width);
  run(drawing, false);
  return true;
}

// Runs what was built: `drawing` are the sequences, or the first of them, whose last row gives a guess. One that the
// model does not have ends its draft.
void DraftHead::run(std::vector<Line*>& drawing, bool reads) {
  const std::vector<int32_t> starts = builder_.step().query_start_loc;
  for (size_t i = 0; i < drawing.size(); ++i) builder_.sample(starts[i + 1] - 1, {.temperature = 0});
  builder_.step().state_rows = builder_.step().sample_rows;
  const int32_t rows = builder_.rows();
  const Clock::time_point before = Clock::now();
  StepResult result = engine_->run(builder_.finish());
  const double seconds = std::chrono::duration<double>(Clock::now() - before).count();
  own_ = std::move(result.states);
  const std::vector<int32_t>& ids = engine_->model().guessed_ids;
  for (size_t i = 0; i < drawing.size(); ++i) {
    int32_t token = result.rows[i].token;
    if (token >= 0 && !ids.empty()) token = ids[static_cast<size_t>(token)];
    if (token < 0 || token >= vocab_) continue;
    drawing[i]->guess->tokens.push_back(token);
    drawing[i]->output = static_cast<int32_t>(i);
  }
  if (reads) {
    pacer_.learn(0, rows, seconds * 1e6);
    reading_us_ += seconds * 1e6;
  } else {
    pacer_.learn_rows(rows, seconds * 1e6);
  }
  ++counts_.steps;
  counts_.seconds += seconds;
}

void DraftHead::check(std::vector<std::string>& faults) const {
  pool_.check(faults);
  std::vector<int32_t> holders(static_cast<size_t>(pool_.size()), 0);
  for (const HeadCache* cache : caches_) {
    for (const int32_t block : cache->blocks) ++holders[static_cast<size_t>(block)];
    if (cache->next - cache->begin > std::ssize(cache->blocks) * limits_.block_size)
      faults.push_back(
          fmt::format("the head: {} positions in {} blocks", cache->next - cache->begin, cache->blocks.size()));
    if (std::ssize(cache->states) > 2 * kMostStates * limits_.reads_width)
      faults.push_back(fmt::format("the head: states of {} positions are kept", cache->end() - cache->from));
  }
  for (int32_t block = 0; block < pool_.size(); ++block)
    if (holders[static_cast<size_t>(block)] != pool_.holders(block))
      faults.push_back(fmt::format("the head's block {}: {} holders counted, {} tables have it", block,
                                   pool_.holders(block), holders[static_cast<size_t>(block)]));
}

}  // namespace ingot
