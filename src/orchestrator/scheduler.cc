#include "orchestrator/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/ceil_div.h"

namespace ingot {
bool Scheduler::Earlier::operator()(const std::shared_ptr<Sequence>& a, const std::shared_ptr<Sequence>& b) const {
  const auto key = [](const Sequence& s) {
    return std::tuple(s.request->spec.priority, s.request->arrival, s.choice, &s);
  };
  return key(*a) < key(*b);
}

Scheduler::Scheduler(const EngineLimits& limits, PrefixTiers& tiers, bool prefix_caching, double target_step_ms)
    : limits_(limits),
      tiers_(tiers),
      prefix_caching_(prefix_caching),
      pool_(limits.num_blocks, limits.block_size,
            [this](int32_t block, const BlockContent& content) { tiers_.leaving(block, content); }),
      pacer_(target_step_ms, limits.max_seqs, limits.max_step_tokens),
      builder_(limits.block_size) {
  for (int32_t slot = limits.sampler_slots; slot-- > 0;) free_slots_.push_back(slot);
}

void Scheduler::add(std::shared_ptr<Sequence> sequence) { move(sequence, Sequence::State::waiting); }

std::shared_ptr<Sequence> Scheduler::fork_of(const Sequence& parent, int64_t known, int64_t computed) {
  auto child = std::make_shared<Sequence>();
  child->request = parent.request;
  child->tokens.assign(parent.tokens.begin(), parent.tokens.begin() + known);
  const auto full = static_cast<size_t>(computed / limits_.block_size);
  child->hashes.assign(parent.hashes.begin(), parent.hashes.begin() + std::min(full, parent.hashes.size()));
  const auto blocks = static_cast<size_t>(ceil_div(computed, limits_.block_size));
  if (parent.computed >= computed &&
      parent.blocks.size() >= blocks) {  // otherwise the parent lost its blocks meanwhile: the child starts anew
    child->blocks.assign(parent.blocks.begin(), parent.blocks.begin() + blocks);
    for (const int32_t block : child->blocks) pool_.share(block);
    child->computed = computed;
    child->remembered = std::min<int64_t>(parent.remembered, static_cast<int64_t>(full));
  }
  return child;
}

ScheduledStep Scheduler::schedule(bool follows_step_in_flight, int32_t parts) {
  ScheduledStep scheduled;
  scheduled.follows = follows_step_in_flight;
  builder_.clear();
  copies_.clear();
  reset_words_ = 0;
  follows_ = follows_step_in_flight && limits_.chains_tokens;
  parts_ = parts;
  const int32_t streams = decoding();
  tiers_.begin_step(streams > 0, streams > 0 ? pacer_.rows_us(std::min(streams, Pacer::kMostRows)) : 0);
  tiers_.save_filled(pool_);
  make_room();
  schedule_decodes(scheduled);
  load_blocks();
  schedule_prompts(scheduled);
  // Saves and loads go with the next step that has rows. Without rows only where no token is on its way: a step names
  // those of the step before it.
  if (scheduled.sequences.empty() && (follows_ || !tiers_.has_moves())) return scheduled;
  builder_.finish();
  scheduled.step = std::move(builder_.step());
  scheduled.step.block_copies = std::move(copies_);
  tiers_.give_moves(scheduled.step);
  return scheduled;
}

// Whether the sequence has something to compute now. One whose last token is still on the device waits when that token
// ends it anyway, when it is a beam, whose next token the host chooses, or when it decides what the next may be.
bool Scheduler::wants_row(const Sequence& sequence) const {
  if (sequence.waits_for_host() || !sequence.loads.empty()) return false;
  if (sequence.in_flight > 0) {
    if (!follows_ || sequence.request->spec.beam_search) return false;
    if (sequence.generated() + sequence.in_flight >= sequence.request->max_tokens) return false;
  }
  return sequence.missing() > 0;
}

int32_t Scheduler::decoding() const {
  return static_cast<int32_t>(std::ranges::count_if(running_, [](const auto& s) { return s->decodes(); }));
}

void Scheduler::schedule_decodes(ScheduledStep& scheduled) {
  const auto most = static_cast<size_t>(ceil_div(decoding(), parts_));
  // A preemption takes from the end of the turns, so it never meets a sequence that has its row already.
  by_turn_ = running_by_turn();
  std::vector<std::shared_ptr<Sequence>> drafting;  // behind those with one row
  for (size_t i = 0; i < by_turn_.size() && scheduled.sequences.size() + drafting.size() < most; ++i) {
    const std::shared_ptr<Sequence> sequence = by_turn_[i];
    if (!sequence->decodes() || sequence->missing() != 1 || !wants_row(*sequence) ||
        builder_.rows() >= limits_.max_step_tokens)
      continue;
    const bool ready =
        extend_blocks(*sequence, sequence->length(), true) && make_writable(*sequence, sequence->length() - 1, true);
    if (!ready) {
      preempt(sequence);
      continue;
    }
    // A draft that came without masks, or with fewer, ends there: they may have been made since anybody looked.
    if (sequence->guide) sequence->draft.resize(std::min(sequence->draft.size(), sequence->guide->drafted()));
    if (has_room_for_draft(*sequence, scheduled.draft_rows)) {
      drafting.push_back(sequence);
      scheduled.draft_rows += 1 + static_cast<int32_t>(sequence->draft.size());
      continue;
    }
    take_rows(scheduled, sequence, 1);
    ++scheduled.decode_rows;
  }
  by_turn_.clear();
  for (const std::shared_ptr<Sequence>& sequence : drafting) take_draft(scheduled, sequence);
  scheduled.drafts = static_cast<int32_t>(drafting.size());
}

// A draft takes rows and blocks that nobody else needs now. Beside a draft there is one row for everybody.
bool Scheduler::has_room_for_draft(Sequence& sequence, int32_t draft_rows) {
  const auto drafted = static_cast<int64_t>(sequence.draft.size());
  const int64_t rows = int64_t{draft_rows} + 1 + drafted + running();
  const int64_t length = sequence.length() + drafted;
  const int64_t blocks = ceil_div(length, limits_.block_size) - static_cast<int64_t>(sequence.blocks.size());
  return drafted > 0 && rows <= std::min(limits_.max_step_tokens, limits_.max_sample_rows) &&
         (blocks <= 0 || pool_.free() > blocks + running()) && extend_blocks(sequence, length, false);
}

// Rows of prompts for one of several steps, so that no stage waits until a long one is through all before it.
int32_t Scheduler::part_of_prompts() const {
  constexpr int64_t kFewest = 32;  // a smaller step costs hardly less
  int64_t rows = 0;
  for (const Queue* queue : {&running_, &waiting_})
    for (const auto& sequence : *queue)
      if (!sequence->decodes()) rows += sequence->missing();
  return static_cast<int32_t>(std::min<int64_t>(std::max(ceil_div(rows, parts_), kFewest), limits_.max_step_tokens));
}

// Rows of what running sequences have to compute before their next token: answers that lost their blocks, or of which a
// grammar left no choice, then prompts; then of sequences that wait.

void Scheduler::schedule_prompts(ScheduledStep& scheduled) {
  // Of several parts each has its streams, be they in this step or in one that is in flight.
  const int32_t streams =
      parts_ > 1 ? static_cast<int32_t>(ceil_div(decoding(), parts_)) : scheduled.decode_rows + scheduled.drafts;
  const auto prompts = static_cast<int32_t>(running_.size() + waiting_.size()) - (parts_ > 1 ? decoding() : streams);
  int32_t budget = std::min(limits_.max_step_tokens - builder_.rows(), pacer_.prefill_rows(streams, prompts));
  if (parts_ > 1) budget = std::min(budget, part_of_prompts());
  const auto take = [&](const std::shared_ptr<Sequence>& sequence) {
    int64_t rows = std::min<int64_t>(budget, sequence->missing());
    if (streams > 0 && rows < sequence->missing() && sequence->missing() <= limits_.max_step_tokens - builder_.rows() &&
        pacer_.undivided(static_cast<int32_t>(sequence->missing()), sequence->computed))
      rows = sequence->missing();
    const int64_t samples_left = limits_.max_sample_rows - outputs();
    if (samples_left < 1) return false;
    if (sequence->request->scores_prompt()) rows = std::min(rows, samples_left);
    const int64_t history = sequence->request->needs_slot() ? sequence->known() : 0;
    if (reset_words_ + history > limits_.max_list_words / 2) return false;
    if (!make_writable(*sequence, sequence->computed, false)) return false;
    scheduled.prefill_reads += sequence->computed;
    take_rows(scheduled, sequence, static_cast<int32_t>(rows));
    budget -= static_cast<int32_t>(rows);
    scheduled.prefill_rows += static_cast<int32_t>(rows);
    return true;
  };
  const std::vector<std::shared_ptr<Sequence>> order = running_by_turn();
  for (const bool generated : {true, false})
    for (const std::shared_ptr<Sequence>& sequence : order) {
      if (budget < 1) return;
      if (sequence->state != Sequence::State::running || sequence->decodes() != generated) continue;
      if (sequence->missing() <= (generated ? 1 : 0) || !wants_row(*sequence)) continue;
      if (!extend_blocks(*sequence, sequence->length(), false)) {  // it has more tokens than when it was admitted
        preempt(sequence);
        continue;
      }
      if (!take(sequence)) return;
    }
  // When the one whose turn it is does not fit, nobody overtakes it.
  while (budget > 0) {
    const std::shared_ptr<Sequence> sequence = next_waiting();
    if (!sequence) return;
    if (!admit(sequence)) {
      if (sequence->waits_for_files()) continue;  // others go on meanwhile
      return;
    }
    if (!load_blocks(*sequence)) continue;
    if (!take(sequence)) return;
  }
}

// Moves a waiting sequence to the running ones with blocks for everything it has to compute. It takes blocks from
// nobody who is running, but from forks that wait behind it.
bool Scheduler::admit(const std::shared_ptr<Sequence>& sequence) {
  if (running() >= limits_.max_seqs) return false;
  const Request& request = *sequence->request;
  if (list_words_ + request.list_words > limits_.max_list_words / 2) return false;
  if (request.needs_slot() && free_slots_.empty()) return false;
  const bool cold = sequence->blocks.empty();
  if (cold) {
    find_prefix(*sequence);
    if (look_in_files(*sequence)) {
      release(*sequence);
      return false;
    }
    // Leave the streams a block each to grow into, so that an admission is not undone by the next step.
    const int64_t needed = ceil_div(sequence->known(), limits_.block_size) -
                           static_cast<int64_t>(sequence->blocks.size() - sequence->loads.size());
    const bool alone = running_.empty();
    if ((!alone && pool_.free() < needed + running()) || !place_loads(*sequence)) {
      release(*sequence);
      return false;
    }
  }
  if (!extend_blocks(*sequence, sequence->known(), false)) {
    release(*sequence);
    return false;
  }
  if (cold && prefix_caching_ && !request.reads_all()) {
    counts_.prefix_queries += static_cast<uint64_t>(sequence->known());
    counts_.prefix_hits += static_cast<uint64_t>(sequence->computed);
    count_tier_hits(*sequence);
    if (sequence->choice == 0 && !sequence->request->started)
      sequence->request->summary.cached_tokens = sequence->computed;
  }
  sequence->lookup.reset();  // what it found is held for the loads now
  client_of(*sequence).admitted = ++admissions_;
  move(sequence, Sequence::State::running);
  if (request.needs_slot()) {
    sequence->slot = free_slots_.back();
    sequence->slot_ready = false;
    free_slots_.pop_back();
  }
  return true;
}

bool Scheduler::extend_blocks(Sequence& sequence, int64_t length, bool may_preempt) {
  const auto wanted = static_cast<size_t>(ceil_div(length, limits_.block_size));
  while (sequence.blocks.size() < wanted) {
    const int32_t block = allocate(sequence, may_preempt);
    if (block < 0) return false;
    sequence.blocks.push_back(block);
  }
  return true;
}

// A block that others hold too is copied before this sequence writes into it.
bool Scheduler::make_writable(Sequence& sequence, int64_t position, bool may_preempt) {
  int32_t& block = sequence.blocks[static_cast<size_t>(position / limits_.block_size)];
  const auto alone = [&] {
    if (pool_.holders(block) > 1) return false;
    pool_.forget(block);  // a fork may hold a block that its parent went on to fill, and has left
    return true;
  };
  if (alone()) return true;
  const int32_t copy = allocate(sequence, may_preempt);
  if (copy < 0) return false;
  if (alone()) {  // making room freed the other holders
    pool_.release(copy);
    return true;
  }
  if (position % limits_.block_size != 0) copies_.push_back({block, copy});
  pool_.release(block);
  block = copy;
  return true;
}

int32_t Scheduler::allocate(const Sequence& wanting, bool may_preempt) {
  for (;;) {
    const int32_t block = pool_.allocate();
    if (block >= 0 || !reclaim(wanting, may_preempt)) return block;
  }
}

// Takes the blocks of somebody who can do without: first of sequences that are not running, then, if allowed, of the
// running one whose turn is last, when it comes after `wanting`.
bool Scheduler::reclaim(const Sequence& wanting, bool may_preempt) {
  for (const Queue* queue : {&parked_, &waiting_})
    for (auto it = queue->rbegin(); it != queue->rend(); ++it)
      if (it->get() != &wanting && !(*it)->blocks.empty()) {
        release(**it);
        return true;
      }
  if (!may_preempt || by_turn_.empty()) return false;
  const std::shared_ptr<Sequence> last = by_turn_.back();
  if (last.get() == &wanting) return false;
  by_turn_.pop_back();
  preempt(last);
  return true;
}

// Adds the sequence's next rows to the step.
void Scheduler::take_rows(ScheduledStep& scheduled, const std::shared_ptr<Sequence>& sequence, int32_t rows) {
  Sequence& s = *sequence;
  const Request& request = *s.request;
  ScheduledSequence part{.sequence = sequence, .rows = rows};
  s.draft.clear();
  const int64_t start = s.computed;
  int32_t first = 0;
  if (s.in_flight > 0) {
    const int32_t on_device = -1 - s.in_flight_row;
    first = builder_.add({&on_device, 1}, start, s.blocks);
  } else {
    first = builder_.add(std::span(s.tokens).subspan(start, rows), start, s.blocks);
  }
  if (request.scores_prompt()) {
    for (int64_t position = start; position < std::min(start + rows, request.prompt_len - 1); ++position) {
      if (position + 1 < static_cast<int64_t>(request.prompt_scores.size())) continue;  // scored before a preemption
      if (part.first_score < 0) {
        part.first_score = outputs();
        part.scored_from = position + 1;
      }
      ++part.scores;
      builder_.sample(first + static_cast<int32_t>(position - start), {}, -1,
                      {.kind = RowOutput::Kind::score,
                       .top = request.spec.prompt_logprobs,
                       .target = s.tokens[static_cast<size_t>(position + 1)]});
    }
  }
  ask_states(part, first, start);
  s.computed += rows;
  part.end = s.computed;
  part.complete = s.computed == s.length();
  if (request.spec.embed && (part.complete || request.keeps_rows)) {
    // Without anything to keep any slot will do that no other sequence of the step has.
    part.pooled = static_cast<int32_t>(builder_.step().pooled.size());
    builder_.pool(request.keeps_rows ? s.slot : part.pooled);
  }
  if (part.complete && request.max_tokens > 0) {
    part.sample = outputs();
    sample_row(s, first + rows - 1);
    s.in_flight_row = part.sample;
    ++s.in_flight;
  }
  scheduled.sequences.push_back(std::move(part));
  // Blocks this step fills with prompt can be shared at once, even by a later sequence of the same step: prefill writes
  // K and V of all rows before any row attends. (A single row may be run as a decode row, which comes earlier.)
  if (rows > 1) remember_blocks(s);
}

// Adds the sequence's next row with its draft behind it, each drawing a token. Only the first is sure to be computed:
// what the others wrote counts when their tokens turn out to be right, and is overwritten otherwise.
void Scheduler::take_draft(ScheduledStep& scheduled, const std::shared_ptr<Sequence>& sequence) {
  Sequence& s = *sequence;
  std::vector<int32_t> tokens{s.tokens.back()};
  tokens.insert(tokens.end(), s.draft.begin(), s.draft.end());
  const auto rows = static_cast<int32_t>(tokens.size());
  const int32_t first = builder_.add(tokens, s.computed, s.blocks);
  ScheduledSequence& part = scheduled.sequences.emplace_back();
  part = {.sequence = sequence, .rows = rows, .sample = outputs(), .drafted = rows - 1, .complete = true};
  ask_states(part, first, s.computed);
  for (int32_t ahead = 0; ahead < rows; ++ahead) sample_row(s, first + ahead, static_cast<size_t>(ahead));
  ++s.computed;
  ++s.in_flight;
}

// Asks for the hidden states of the part's rows, the first of which is `first` and at position `start`: of a prompt the
// last kMostStates, and as many of the step as the engine gives.
void Scheduler::ask_states(ScheduledSequence& part, int32_t first, int64_t start) {
  const Request& request = *part.sequence->request;
  if (!request.gives_states) return;
  std::vector<int32_t>& rows = builder_.step().state_rows;
  const int64_t end = start + part.rows, room = limits_.max_state_rows - std::ssize(rows);
  const int64_t from = std::max({start, request.prompt_len - kMostStates, end - room});
  if (from >= end) return;
  part.first_state = static_cast<int32_t>(rows.size());
  part.states = static_cast<int32_t>(end - from);
  part.states_from = from;
  for (int64_t position = from; position < end; ++position)
    rows.push_back(first + static_cast<int32_t>(position - start));
}

// Asks for a row's token, as the sequence's request wants it drawn; behind `ahead` tokens of its draft.
void Scheduler::sample_row(Sequence& s, int32_t row, size_t ahead) {
  const Request& request = *s.request;
  if (s.slot >= 0 && !s.slot_ready) {
    const auto split = s.tokens.begin() + request.prompt_len;
    builder_.reset_sampler(
        {.slot = s.slot, .prompt_ids = {s.tokens.begin(), split}, .output_ids = {split, s.tokens.end()}});
    reset_words_ += s.known();
    s.slot_ready = true;
  }
  SamplingParams sampling;
  RowOutput output;
  if (!request.spec.beam_search) sampling = request.spec.sampling;
  sampling.seed += static_cast<uint64_t>(s.choice);
  if (request.spec.beam_search)
    output = {.kind = RowOutput::Kind::logprobs, .top = std::min(2 * request.width, limits_.max_top)};
  else if (request.reports_scores())
    output = {.kind = RowOutput::Kind::logprobs, .top = std::max(request.spec.logprobs, 0)};
  builder_.sample(row, std::move(sampling), s.slot, output,
                  s.guide ? s.guide->mask(ahead) : std::span<const uint32_t>());
}

void Scheduler::release(Sequence& sequence) {
  for (const BlockLoad& load : std::exchange(sequence.loads, {})) tiers_.release(load.host_block);
  std::erase(sequence.blocks, -1);
  pool_.release_all(sequence.blocks);
  sequence.computed = 0;
  sequence.remembered = 0;
  if (sequence.slot >= 0) free_slots_.push_back(std::exchange(sequence.slot, -1));
  sequence.slot_ready = false;
}

void Scheduler::park(const std::shared_ptr<Sequence>& sequence) { move(sequence, Sequence::State::parked); }

void Scheduler::preempt(const std::shared_ptr<Sequence>& sequence) {
  release(*sequence);
  sequence->looked_in_files = false;
  move(sequence, Sequence::State::waiting);
  ++sequence->request->summary.preemptions;
  ++counts_.preemptions;
}

void Scheduler::retire(const std::shared_ptr<Sequence>& sequence) {
  move(sequence, Sequence::State::finished);
  release(*sequence);
  if (const auto lookup = std::exchange(sequence->lookup, nullptr)) lookup->cancel();
}

void Scheduler::check(std::span<const std::shared_ptr<Sequence>> alive, std::vector<std::string>& faults) const {
  pool_.check(faults);
  tiers_.check(faults);
  std::vector<int32_t> holders(static_cast<size_t>(pool_.size()), 0);
  std::vector<int32_t> slots(static_cast<size_t>(limits_.sampler_slots), 0);
  for (const int32_t slot : free_slots_) ++slots[slot];
  int64_t words = 0;
  size_t queued = 0;
  for (const auto& sequence : alive) {
    const Sequence& s = *sequence;
    const std::string name = fmt::format("request {} choice {}", s.request->spec.id, s.choice);
    for (const int32_t block : s.blocks) ++holders[block];
    if (s.slot >= 0) ++slots[s.slot];
    if (s.state == Sequence::State::running) words += s.request->list_words;
    const Queue* queue = s.state == Sequence::State::running   ? &running_
                         : s.state == Sequence::State::waiting ? &waiting_
                         : s.state == Sequence::State::parked  ? &parked_
                                                               : nullptr;
    if (queue == nullptr) {
      if (!s.blocks.empty() || s.slot >= 0) faults.push_back(name + ": finished, but holds blocks or a sampler slot");
      continue;
    }
    ++queued;
    if (!queue->contains(sequence)) faults.push_back(name + ": not in the queue its state says");
    if (s.computed > static_cast<int64_t>(s.blocks.size()) * limits_.block_size)
      faults.push_back(fmt::format("{}: {} positions computed in {} blocks", name, s.computed, s.blocks.size()));
    if (s.computed > s.length()) faults.push_back(name + ": more positions computed than it has tokens");
    for (int64_t i = 0; i < s.remembered; ++i) {
      const std::span<const int32_t> tokens = std::span(s.tokens).subspan(i * limits_.block_size, limits_.block_size);
      if (tiers_.hasher().chain(parent_hash(s, i), tokens) != s.hashes[static_cast<size_t>(i)])
        faults.push_back(fmt::format("{}: the hash of block {} is not that of its tokens", name, i));
    }
  }
  if (queued != running_.size() + waiting_.size() + parked_.size())
    faults.push_back(fmt::format("the queues have {} sequences, {} are alive",
                                 running_.size() + waiting_.size() + parked_.size(), queued));
  for (int32_t block = 0; block < pool_.size(); ++block)
    if (holders[block] != pool_.holders(block))
      faults.push_back(
          fmt::format("block {}: {} holders counted, {} tables have it", block, pool_.holders(block), holders[block]));
  for (int32_t slot = 0; slot < limits_.sampler_slots; ++slot)
    if (slots[slot] != 1) faults.push_back(fmt::format("sampler slot {}: {} owners", slot, slots[slot]));
  size_t of_clients = 0;
  for (const auto& [name, client] : clients_) of_clients += client.running.size() + client.waiting.size();
  if (of_clients != running_.size() + waiting_.size())
    faults.push_back(
        fmt::format("the clients have {} sequences, the queues {}", of_clients, running_.size() + waiting_.size()));
  if (words != list_words_) faults.push_back(fmt::format("{} list words counted, {} in use", list_words_, words));
}

}  // namespace ingot
