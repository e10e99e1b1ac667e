#include "orchestrator/draft_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/ceil_div.h"
#include "orchestrator/measured_steps.h"
#include "orchestrator/speculator.h"

namespace ingot {
namespace {

constexpr int64_t kFewHeadRows = 4;     // that every draft begins with: those of the tokens that came with the last
constexpr int64_t kKeptStates = 32;     // positions of which the states stay when they were read, to begin with anew
constexpr int32_t kMeasuredRows = 64;
constexpr int64_t kDraftsCounted = 32;  // that reading a text counts on

}  // namespace

HeadCache::HeadCache(DraftHead& owner) : DraftBlocks(owner), width(owner.state_width()) {}

// What is left is moved: so this is not for every step.
void HeadCache::forget_before(int64_t position) {
  states.erase(states.begin(), states.begin() + (position - from) * width);
  from = position;
}

int64_t HeadCache::end() const { return from + std::ssize(states) / width; }

void HeadCache::check(std::vector<std::string>& faults) const {
  if (std::ssize(states) > 2 * kMostStates * width)
    faults.push_back(fmt::format("the head: states of {} positions are kept", end() - from));
}

DraftHead::DraftHead(std::unique_ptr<Engine> engine, int64_t vocab)
    : EngineDrafter("the head", std::move(engine), vocab) {
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
  if (given_up() || cache == nullptr || cache->end() < sequence.known() - 1) return;
  ++offers_;
  guess.most = static_cast<int32_t>(std::min<int64_t>(most, limits_.max_model_len - kKeptStates));
  guess.prior = kPrior;
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
    for (Guess& guess : guesses) guess.tokens.clear();
    fail();
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

// The positions that are new, and the first guess of the sequences whose last is among them. The others go on reading
// with their next draft.
bool DraftHead::read(std::vector<Line>& lines) {
  // Those that decode come first in a step; and they must not wait for those that read.
  std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.last - line.first; });
  builder_.clear();
  Step& step = builder_.step();
  std::vector<Line*> drawing;
  int64_t room = std::min(kMostRead, limits_.max_step_tokens);
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
  count_step(rows, reads, seconds);
}

}  // namespace ingot
