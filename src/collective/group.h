#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ingot {

// Devices that run one model together, a process each: what they must be able to do for one another. Members: MPI
// (mpi_group.h); for tests, threads of one process. A device alone has no group.
//
// Within a step the collectives of op.h are made of the first three. They take memory of the device, where a group can
// reach it: on the CPU any, on a GPU that of its own transport. All ranks of a step make the same calls in the same
// order, each from one thread at a time; the thread that hands out steps may call the others meanwhile.
class Group {
 public:
  virtual ~Group() = default;  // rank 0: ends the group, see hear()

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int neighbours() const = 0;       // ranks on this machine, this one included: they share its memory
  virtual std::string machine() const = 0;  // its name

  // -- within a step --
  // Sends `out` to another rank and receives as many bytes from it.
  virtual void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) = 0;
  virtual void send(int peer, std::span<const std::byte> bytes) = 0;
  virtual void receive(int peer, std::span<std::byte> bytes) = 0;

  // -- between steps --
  // Rank 0 says something to all others; never nothing.
  virtual void tell(std::span<const std::byte> message) = 0;
  // What it said next; nothing: the group has ended.
  virtual std::vector<std::byte> hear() = 0;
  // Everybody's note, in the order of ranks.
  virtual std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) = 0;

  // Ends the processes of all ranks at once: this one cannot go on.
  [[noreturn]] virtual void abort() = 0;
};

}  // namespace ingot
