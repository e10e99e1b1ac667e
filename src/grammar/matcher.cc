#include "grammar/matcher.h"

#include <utility>

#include "grammar/machine.h"

namespace ingot::grammar {

Matcher::Matcher(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)), machine_(grammar_->machine()) {
  history_.push_back({machine_->automaton.first(), 0, false});
}

template <typename Work>
auto Matcher::on_machine(Work work) {
  const auto attempt = [&] {
    const std::lock_guard lock(machine_->mutex);
    machine_->program.budget.begin(machine_->program.budget.limits().max_step_time);
    return work();
  };
  if (machine_->retired) move_to_fresh_machine();
  try {
    return attempt();
  } catch (const OverBudget&) {
    move_to_fresh_machine();
  }
  return attempt();
}

// What has been accepted is read again there.
void Matcher::move_to_fresh_machine() {
  std::shared_ptr<Machine> fresh = grammar_->renew(machine_);
  const std::lock_guard lock(fresh->mutex);
  fresh->program.budget.begin(fresh->program.budget.limits().max_step_time);
  std::vector<Place> history = history_;
  Configuration* at = fresh->automaton.first();
  size_t length = 0;
  for (Place& place : history) {
    for (; length < place.length; ++length) at = fresh->automaton.step(at, static_cast<uint8_t>(text_[length]));
    place.configuration = at;
  }
  machine_ = std::move(fresh);
  history_ = std::move(history);
}

Configuration* Matcher::walk(Configuration* from, std::string_view bytes, size_t& taken) {
  Configuration* const dead = machine_->automaton.dead();
  for (taken = 0; taken < bytes.size(); ++taken) {
    Configuration* to = machine_->automaton.step(from, static_cast<uint8_t>(bytes[taken]));
    if (to == dead) break;
    from = to;
  }
  return from;
}

size_t Matcher::accept_bytes(std::string_view bytes) {
  if (is_finished()) return 0;
  size_t taken = 0;
  Configuration* to = on_machine([&] { return walk(history_.back().configuration, bytes, taken); });
  if (taken < bytes.size()) return taken;
  text_ += bytes;
  history_.push_back({to, text_.size(), false});
  return taken;
}

bool Matcher::accept(int32_t token) {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  if (is_finished() || token < 0 || static_cast<size_t>(token) >= vocabulary.size()) return false;
  if (vocabulary.is_end(token)) {
    if (!is_complete()) return false;
    history_.push_back({history_.back().configuration, text_.size(), true});
    return true;
  }
  const std::string& bytes = vocabulary.bytes(token);
  return !bytes.empty() && accept_bytes(bytes) == bytes.size();
}

void Matcher::fill_mask(std::span<uint32_t> bits) {
  if (bits.size() != grammar_->vocabulary().mask_words())
    throw_error(ErrorKind::internal, "a mask has {} words, not {}", bits.size(), grammar_->vocabulary().mask_words());
  if (is_finished()) {  // nothing but the end again
    std::ranges::fill(bits, 0);
    for (const int32_t id : grammar_->vocabulary().end_ids())
      bits[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
    return;
  }
  on_machine([&] {
    machine_->masks.fill(history_.back().configuration, bits);
    return 0;
  });
}

std::string Matcher::forced(size_t most) {
  if (is_finished()) return {};
  return on_machine([&] {
    std::string out;
    Automaton& automaton = machine_->automaton;
    for (Configuration* at = history_.back().configuration; out.size() < most && !at->complete;) {
      Configuration* only = nullptr;
      int byte = 0;
      for (int candidate = 0; candidate < 256; ++candidate) {
        Configuration* to = automaton.step(at, static_cast<uint8_t>(candidate));
        if (to == automaton.dead()) continue;
        if (only != nullptr) return out;
        only = to;
        byte = candidate;
      }
      if (only == nullptr) break;
      out.push_back(static_cast<char>(byte));
      at = only;
    }
    return out;
  });
}

void Matcher::rollback(size_t steps) {
  if (steps > this->steps())
    throw_error(ErrorKind::internal, "a matcher of {} steps cannot go back {}", this->steps(), steps);
  history_.resize(history_.size() - steps);
  text_.resize(history_.back().length);
}

bool Matcher::is_complete() const { return history_.back().configuration->complete; }
bool Matcher::is_finished() const { return history_.back().finished; }

}  // namespace ingot::grammar
