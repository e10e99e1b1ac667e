#include "collective/mpi_group.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "collective/mpi_library.h"
#include "collective/mpi_watch.h"
#include "core/error.h"

namespace ingot {
namespace {

// How long a rank that waits for the next step sleeps between two looks: shorter while steps come one after the other.
constexpr std::chrono::microseconds kShortestNap{20}, kLongestNap{500};

int count_of(std::span<const std::byte> bytes) { return static_cast<int>(bytes.size()); }

// MPI ends all processes itself where one of its calls fails.
class MpiGroup final : public Group {
 public:
  MpiGroup() : mpi_(mpi_library()) {
    int provided = 0;
    mpi_.Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE)
      throw_error(ErrorKind::declined, "the MPI library here is built without threads (MPI_THREAD_MULTIPLE)");
    mpi_.Comm_rank(mpi_.world, &rank_);
    mpi_.Comm_size(mpi_.world, &size_);
    mpi_.Comm_dup(mpi_.world, &steps_);
    mpi_.Comm_dup(mpi_.world, &words_);
    MPI_Comm here{};
    mpi_.Comm_split_type(mpi_.world, MPI_COMM_TYPE_SHARED, 0, mpi_.no_info, &here);
    mpi_.Comm_size(here, &neighbours_);
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    mpi_.Get_processor_name(name, &length);
    machine_.assign(name, static_cast<size_t>(length));
    std::vector<std::string> machines;
    for (const std::vector<std::byte>& other : compare(std::as_bytes(std::span(machine_))))
      machines.emplace_back(reinterpret_cast<const char*>(other.data()), other.size());
    MPI_Comm beats{};
    mpi_.Comm_dup(mpi_.world, &beats);
    watch_ = std::make_unique<MpiWatch>(mpi_, beats, rank_, std::move(machines));
  }
  ~MpiGroup() override {
    if (rank_ == 0) say({});
    mpi_.Barrier(words_);  // watched: another rank may hang before it comes here
    watch_.reset();
    mpi_.Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int neighbours() const override { return neighbours_; }
  std::string machine() const override { return machine_; }

  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    mpi_.Sendrecv(out.data(), count_of(out), mpi_.byte, peer, 0, in.data(), count_of(in), mpi_.byte, peer, 0, steps_,
                  MPI_STATUS_IGNORE);
  }
  void send(int peer, std::span<const std::byte> bytes) override {
    mpi_.Send(bytes.data(), count_of(bytes), mpi_.byte, peer, 0, steps_);
  }
  void receive(int peer, std::span<std::byte> bytes) override {
    mpi_.Recv(bytes.data(), count_of(bytes), mpi_.byte, peer, 0, steps_, MPI_STATUS_IGNORE);
  }

  void tell(std::span<const std::byte> message) override { say(message); }

  std::vector<std::byte> hear() override {
    std::chrono::microseconds nap = kShortestNap;
    for (;;) {
      int there = 0;
      MPI_Message message{};
      MPI_Status status{};
      mpi_.Improbe(0, 0, words_, &there, &message, &status);
      if (there != 0) {
        int count = 0;
        mpi_.Get_count(&status, mpi_.byte, &count);
        std::vector<std::byte> bytes(static_cast<size_t>(count));
        mpi_.Mrecv(bytes.data(), count, mpi_.byte, &message, MPI_STATUS_IGNORE);
        return bytes;
      }
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, kLongestNap);
    }
  }

  std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) override {
    std::vector<int> counts(static_cast<size_t>(size_)), offsets(static_cast<size_t>(size_));
    int count = count_of(note), total = 0;
    mpi_.Allgather(&count, sizeof count, mpi_.byte, counts.data(), sizeof count, mpi_.byte, words_);
    for (size_t i = 0; i < counts.size(); ++i) {
      offsets[i] = total;
      total += counts[i];
    }
    std::vector<std::byte> all(static_cast<size_t>(total));
    mpi_.Allgatherv(note.data(), count, mpi_.byte, all.data(), counts.data(), offsets.data(), mpi_.byte, words_);
    std::vector<std::vector<std::byte>> notes;
    for (size_t i = 0; i < counts.size(); ++i)
      notes.emplace_back(all.begin() + offsets[i], all.begin() + offsets[i] + counts[i]);
    return notes;
  }

  void abort() override {
    mpi_.Abort(mpi_.world, 1);
    std::_Exit(1);
  }

 private:
  void say(std::span<const std::byte> message) {
    for (int peer = 1; peer < size_; ++peer) mpi_.Send(message.data(), count_of(message), mpi_.byte, peer, 0, words_);
  }

  const MpiLibrary& mpi_;
  int rank_ = 0, size_ = 1, neighbours_ = 1;
  std::string machine_;
  MPI_Comm steps_{}, words_{};  // what devices say to one another, and what rank 0 says
  std::unique_ptr<MpiWatch> watch_;
};

// What mpirun tells the processes it starts.
int ranks_started() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 1;
}

}  // namespace

std::shared_ptr<Group> join_mpi(int ranks) {
  if (const int started = ranks_started(); started != ranks)
    throw_error(ErrorKind::bad_call, "--tp {}: start as many processes, `mpirun -n {} ingot ...`; there {} {}", ranks,
                ranks, started == 1 ? "is" : "are", started);
  static const std::shared_ptr<Group> group = std::make_shared<MpiGroup>();
  return group;
}

}  // namespace ingot
