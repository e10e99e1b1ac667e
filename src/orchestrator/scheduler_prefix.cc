// What the scheduler knows of cached prefixes: which blocks a sequence need not compute, and where they are.
#include <algorithm>

#include "orchestrator/scheduler.h"

namespace ingot {

// Takes over the blocks that the sequence's tokens begin with; of those that are in host memory the places are left
// open
// (-1). At least one position is left to compute: its row gives the next token.
void Scheduler::find_prefix(Sequence& sequence) {
  if (!prefix_caching_ || sequence.request->reads_all()) return;
  extend_hashes(sequence);
  const int64_t most = (sequence.known() - 1) / limits_.block_size;
  int64_t found = 0;
  for (; found < most; ++found) {
    const BlockContent content = content_of(sequence, found);
    int32_t block = pool_.find(content);
    if (block >= 0) {
      pool_.share(block);
    } else {
      const int32_t host_block = tiers_.hold(content);
      if (host_block < 0) break;
      sequence.loads.push_back({host_block, found});
    }
    sequence.blocks.push_back(block);
  }
  sequence.computed = found * limits_.block_size;
  sequence.remembered = found;
  tiers_.used(std::span(sequence.hashes).first(static_cast<size_t>(found)));
}

// Fills the places that were left open.
bool Scheduler::place_loads(Sequence& sequence) {
  for (const BlockLoad& load : sequence.loads) {
    const int32_t block = allocate(sequence, false);
    if (block < 0) return false;
    sequence.blocks[static_cast<size_t>(load.position)] = block;
  }
  return true;
}

// Has files searched for what is in no memory, once in a while that it waits; false: there is nothing to wait for.
bool Scheduler::look_in_files(Sequence& sequence) {
  if (!prefix_caching_ || sequence.request->reads_all() || sequence.looked_in_files) return false;
  sequence.looked_in_files = true;
  const int64_t size = limits_.block_size, first = sequence.computed / size, most = (sequence.known() - 1) / size;
  if (first >= most) return false;
  sequence.lookup = tiers_.look(first, std::span(sequence.hashes).subspan(first, most - first),
                                std::span(sequence.tokens).subspan(first * size, (most - first) * size));
  return sequence.lookup != nullptr;
}

void Scheduler::count_tier_hits(const Sequence& sequence) {
  const auto loads = static_cast<int64_t>(sequence.loads.size());
  const int64_t read = sequence.lookup ? std::min(sequence.lookup->read(), loads) : 0;
  counts_.disk_hits += static_cast<uint64_t>(read * limits_.block_size);
  counts_.host_hits += static_cast<uint64_t>((loads - read) * limits_.block_size);
}

// Goes on with what earlier steps had no room for.
void Scheduler::load_blocks() {
  for (const std::shared_ptr<Sequence>& sequence : running_by_turn()) load_blocks(*sequence);
}

// Has the sequence's blocks loaded by this step; false: some are left to later ones.
bool Scheduler::load_blocks(Sequence& sequence) {
  std::vector<BlockLoad>& loads = sequence.loads;
  if (loads.empty()) return true;
  size_t done = 0;
  for (; done < loads.size() && tiers_.may_load(); ++done) {
    const int32_t block = sequence.blocks[static_cast<size_t>(loads[done].position)];
    tiers_.load(loads[done].host_block, block);
    pool_.remember(block, content_of(sequence, loads[done].position));  // rows of the same step may read it
  }
  loads.erase(loads.begin(), loads.begin() + static_cast<int64_t>(done));
  return loads.empty();
}

void Scheduler::start_over() {
  for (const std::shared_ptr<Sequence>& sequence : std::vector(running_.begin(), running_.end())) preempt(sequence);
  for (const Queue* queue : {&waiting_, &parked_})
    for (const std::shared_ptr<Sequence>& sequence : *queue) release(*sequence);
  pool_.forget_all();
  tiers_.forget_device();
}

BlockContent Scheduler::content_of(const Sequence& sequence, int64_t block) const {
  const int64_t size = limits_.block_size;
  return {sequence.hashes[static_cast<size_t>(block)], block, std::span(sequence.tokens).subspan(block * size, size)};
}

void Scheduler::extend_hashes(Sequence& sequence) {
  const int64_t size = limits_.block_size;
  const int64_t full = sequence.known() / size;
  for (auto i = static_cast<int64_t>(sequence.hashes.size()); i < full; ++i)
    sequence.hashes.push_back(
        tiers_.hasher().chain(parent_hash(sequence, i), std::span(sequence.tokens).subspan(i * size, size)));
}

BlockHash Scheduler::parent_hash(const Sequence& sequence, int64_t block) const {
  const BlockHash parent = block == 0 ? BlockHash{} : sequence.hashes[static_cast<size_t>(block - 1)];
  return block == sequence.request->unsalted_blocks ? tiers_.hasher().salted(parent, sequence.request->salt) : parent;
}

void Scheduler::remember_blocks(Sequence& sequence) {
  if (!prefix_caching_ || sequence.blocks.empty()) return;
  const int64_t full = std::min(sequence.computed, sequence.known()) / limits_.block_size;
  if (sequence.remembered >= full) return;
  extend_hashes(sequence);
  for (; sequence.remembered < full; ++sequence.remembered) {
    const int32_t block = sequence.blocks[static_cast<size_t>(sequence.remembered)];
    const BlockContent content = content_of(sequence, sequence.remembered);
    if (pool_.remember(block, content)) tiers_.filled(block, content.hash);
  }
}

}  // namespace ingot
