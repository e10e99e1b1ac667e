// The scheduler's queues, and whose turn it is.
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/ceil_div.h"
#include "orchestrator/scheduler.h"

namespace ingot {

void Scheduler::move(const std::shared_ptr<Sequence>& sequence, Sequence::State to) {
  using State = Sequence::State;
  const auto client = clients_.try_emplace(sequence->request->spec.client).first;
  running_.erase(sequence);
  waiting_.erase(sequence);
  parked_.erase(sequence);
  if (client->second.running.erase(sequence) > 0) list_words_ -= sequence->request->list_words;
  client->second.waiting.erase(sequence);
  sequence->state = to;
  if (to == State::running) {
    running_.insert(sequence);
    client->second.running.insert(sequence);
    list_words_ += sequence->request->list_words;
  } else if (to == State::waiting) {
    waiting_.insert(sequence);
    client->second.waiting.insert(sequence);
  } else if (to == State::parked) {
    parked_.insert(sequence);
  }
  if (client->second.running.empty() && client->second.waiting.empty()) clients_.erase(client);
}

int64_t Scheduler::Client::blocks() const {
  int64_t blocks = 0;
  for (const auto& sequence : running) blocks += static_cast<int64_t>(sequence->blocks.size());
  return blocks;
}

// The first of every client, then the second of every client, ...; priorities apart.
std::vector<std::shared_ptr<Sequence>> Scheduler::running_by_turn() const {
  std::vector<std::shared_ptr<Sequence>> order(running_.begin(), running_.end());
  if (clients_.size() < 2) return order;
  std::map<const Sequence*, std::pair<int32_t, int32_t>> turns;  // priority, and the how-manieth of its client
  std::map<std::pair<std::string_view, int32_t>, int32_t> counts;
  for (const auto& sequence : order) {
    const GenerationRequest& spec = sequence->request->spec;
    turns[sequence.get()] = {spec.priority, counts[{spec.client, spec.priority}]++};
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return turns.find(a.get())->second < turns.find(b.get())->second;
  });
  return order;
}

// Whose turn it is to be admitted: the first of the client that has least running, and between equals of the one that
// was served longest ago; null when nobody waits.
std::shared_ptr<Sequence> Scheduler::next_waiting() const {
  std::shared_ptr<Sequence> best;
  std::tuple<int32_t, size_t, uint64_t> best_turn;
  for (const auto& [name, client] : clients_) {
    for (const auto& sequence : client.waiting) {
      // Preempted while its token was on the device: known after the next commit.
      if (sequence->in_flight > 0 || sequence->waits_for_host() || sequence->waits_for_files()) continue;
      const std::tuple turn(sequence->request->spec.priority, client.running.size(), client.admitted);
      if (!best || turn < best_turn || (turn == best_turn && Earlier()(sequence, best))) {
        best = sequence;
        best_turn = turn;
      }
      break;
    }
  }
  return best;
}

// Before a step is scheduled: whoever is next to be admitted may take what it lacks from who has more of it.
void Scheduler::make_room() {
  if (clients_.size() < 2) return;
  const std::shared_ptr<Sequence> next = next_waiting();
  if (!next) return;
  const bool seats_gone = running() >= limits_.max_seqs || (next->request->needs_slot() && free_slots_.empty());
  if (seats_gone && !take_from_richest(*next, true, 0)) return;
  const int64_t needed = ceil_div(next->known(), limits_.block_size) - static_cast<int64_t>(next->blocks.size());
  while (pool_.free() < needed + running() && take_from_richest(*next, false, needed)) {
  }
}

// Preempts the last of the client that has the most seats or blocks, if it then still has as many as the poor one.
bool Scheduler::take_from_richest(const Sequence& poor, bool seat, int64_t blocks) {
  const Client& own = client_of(poor);
  const auto wealth = [&](const Client& client) {
    return seat ? static_cast<int64_t>(client.running.size()) : client.blocks();
  };
  const Client* richest = nullptr;
  for (const auto& [name, client] : clients_)
    if (&client != &own && !client.running.empty() && (!richest || wealth(client) > wealth(*richest)))
      richest = &client;
  if (!richest) return false;
  const std::shared_ptr<Sequence> last = *richest->running.rbegin();
  if (last->request->spec.priority < poor.request->spec.priority) return false;
  const int64_t given = seat ? 1 : static_cast<int64_t>(last->blocks.size());
  if (wealth(*richest) - given < wealth(own) + (seat ? 1 : blocks)) return false;
  preempt(last);
  return true;
}

}  // namespace ingot
