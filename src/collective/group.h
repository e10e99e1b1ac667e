#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ingot {

// What goes to a rank, and what comes from it: not always as much. Either may be empty.
struct Exchange {
  int peer = 0;
  std::span<const std::byte> out;
  std::span<std::byte> in;
};

// Devices that run a step together: what the collectives of op.h are made of. They take memory that the host reaches:
// on the CPU the device's own, on a GPU its mailboxes (backend/metal/mailboxes.h). All ranks of a step make calls that
// belong together in the same order, each from one thread at a time.
class Peers {
 public:
  virtual ~Peers() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends `out` to another rank and receives `in` from it.
  virtual void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) = 0;
  virtual void send(int peer, std::span<const std::byte> bytes) = 0;
  virtual void receive(int peer, std::span<std::byte> bytes) = 0;
  // Several of these, each with another rank. A transport that can has all of them under way at once; here they come
  // one after the other, which ends if all ranks name the others in the order rank ^ 1, rank ^ 2, ..., or in one
  // direction.
  virtual void exchange_all(std::span<const Exchange> with) {
    for (const Exchange& one : with) {
      if (one.in.empty())
        send(one.peer, one.out);
      else if (one.out.empty())
        receive(one.peer, one.in);
      else
        exchange(one.peer, one.out, one.in);
    }
  }

  // A transport that reaches the GPU's own memory and follows its streams (NCCL): then the GPU's operations need
  // neither mailboxes nor a thread of the host.
  virtual bool on_stream() const { return false; }
  // exchange_all() of addresses of the GPU, in the order of what `stream` (a cudaStream_t) does; it is not waited for.
  virtual void exchange_on(void* /*stream*/, std::span<const Exchange> with) { exchange_all(with); }
};

// Some ranks of a group among themselves: `size` of them, every `stride`-th from `first` on. Those that share layers,
// or those that have the same share of one stage after the other.
class SomePeers final : public Peers {
 public:
  SomePeers(Peers& all, int first, int stride, int size) : all_(all), first_(first), stride_(stride), size_(size) {}

  int rank() const override { return (all_.rank() - first_) / stride_; }
  int size() const override { return size_; }
  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    all_.exchange(first_ + peer * stride_, out, in);
  }
  void send(int peer, std::span<const std::byte> bytes) override { all_.send(first_ + peer * stride_, bytes); }
  void receive(int peer, std::span<std::byte> bytes) override { all_.receive(first_ + peer * stride_, bytes); }
  void exchange_all(std::span<const Exchange> with) override { all_.exchange_all(of_all(with)); }
  bool on_stream() const override { return all_.on_stream(); }
  void exchange_on(void* stream, std::span<const Exchange> with) override { all_.exchange_on(stream, of_all(with)); }

 private:
  std::span<const Exchange> of_all(std::span<const Exchange> with) {
    exchanges_.assign(with.begin(), with.end());
    for (Exchange& one : exchanges_) one.peer = first_ + one.peer * stride_;
    return exchanges_;
  }

  Peers& all_;
  int first_, stride_, size_;
  std::vector<Exchange> exchanges_;
};

// Devices that have one model together, a process each: what they must be able to do for one another. Members: MPI
// (mpi_group.h); for tests, threads of one process. A device alone has no group. While devices run a step, the thread
// that hands out steps may call what is here.
class Group : public Peers {
 public:
  ~Group() override = default;  // rank 0: ends the group, see hear()

  virtual int neighbours() const = 0;       // ranks on this machine, this one included: they share its memory
  virtual std::string machine() const = 0;  // its name

  // Rank 0 says something to all others; never nothing.
  virtual void tell(std::span<const std::byte> message) = 0;
  // What it said next; nothing: the group has ended.
  virtual std::vector<std::byte> hear() = 0;
  // What a step gave on another rank, to rank 0, which knows how many bytes it is; as many calls there as here, in the
  // same order.
  virtual void answer(std::span<const std::byte> bytes) = 0;
  virtual void take_answer(int rank, std::span<std::byte> bytes) = 0;
  // Everybody's note, in the order of ranks.
  virtual std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) = 0;

  // Ends the processes of all ranks at once: this one cannot go on, and `why` is told once. From any thread.
  [[noreturn]] virtual void abort(const std::string& why) = 0;
};

// Ranks are in stages of `tp` each. The ones that share the layers of this rank's stage:
inline std::unique_ptr<Peers> layer_peers(Group& all, int tp) {
  return std::make_unique<SomePeers>(all, all.rank() / tp * tp, 1, tp);
}
// and the ones that have the same share of each stage, in the order of stages.
inline std::unique_ptr<Peers> stage_peers(Group& all, int tp) {
  return std::make_unique<SomePeers>(all, all.rank() % tp, tp, all.size() / tp);
}

}  // namespace ingot
