#include "collective/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "collective/links.h"
#include "collective/lost_rank.h"
#include "collective/mpi_beats.h"
#include "collective/mpi_session.h"
#include "collective/mpi_tcp.h"
#include "core/error.h"

namespace ingot {
namespace {

constexpr int kWord = 0, kAnswer = 1;  // tags of what rank 0 says, and of what it is told

// How long a rank that waits for the next step sleeps between two looks: shorter while steps come one after the other.
constexpr std::chrono::microseconds kShortestNap{20}, kLongestNap{100};

int count_of(std::span<const std::byte> bytes) { return static_cast<int>(bytes.size()); }

// MPI ends all processes itself where one of its calls fails.
class MpiGroup final : public Group {
 public:
  explicit MpiGroup(std::shared_ptr<MpiSession> session)
      : session_(std::move(session)), mpi_(session_->mpi), rank_(session_->rank), size_(session_->size) {
    mpi_.Comm_dup(mpi_.world, &steps_);
    mpi_.Comm_dup(mpi_.world, &words_);
    MPI_Comm here{};
    mpi_.Comm_split_type(mpi_.world, MPI_COMM_TYPE_SHARED, 0, mpi_.no_info, &here);
    mpi_.Comm_size(here, &neighbours_);
    std::vector<std::string> machines;
    for (const std::vector<std::byte>& other : compare(std::as_bytes(std::span(session_->machine))))
      machines.emplace_back(reinterpret_cast<const char*>(other.data()), other.size());
    const std::string process = MpiSession::process();
    const std::vector<std::byte> leader = compare(std::as_bytes(std::span(process)))[0];
    session_->leader_is({reinterpret_cast<const char*>(leader.data()), leader.size()});
    MPI_Comm beats{};
    mpi_.Comm_dup(mpi_.world, &beats);
    beats_ = std::make_unique<MpiBeats>(mpi_, beats, rank_, std::move(machines),
                                        [this](const std::string& why, bool is_said) { end(why, is_said, !is_said); });
  }
  ~MpiGroup() override {
    if (rank_ == 0) say({});
    mpi_.Barrier(words_);  // watched: another rank may hang before it comes here
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int neighbours() const override { return neighbours_; }
  std::string machine() const override { return session_->machine; }

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

  void exchange_all(std::span<const Exchange> with) override {
    requests_.clear();
    for (const Exchange& one : with)
      if (!one.in.empty())
        mpi_.Irecv(one.in.data(), count_of(one.in), mpi_.byte, one.peer, 0, steps_, &requests_.emplace_back());
    for (const Exchange& one : with)
      if (!one.out.empty())
        mpi_.Isend(one.out.data(), count_of(one.out), mpi_.byte, one.peer, 0, steps_, &requests_.emplace_back());
    mpi_.Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

  void tell(std::span<const std::byte> message) override { say(message); }

  std::vector<std::byte> hear() override {
    MPI_Status status{};
    MPI_Message message = wait_for(0, kWord, status);
    int count = 0;
    mpi_.Get_count(&status, mpi_.byte, &count);
    std::vector<std::byte> bytes(static_cast<size_t>(count));
    mpi_.Mrecv(bytes.data(), count, mpi_.byte, &message, MPI_STATUS_IGNORE);
    return bytes;
  }

  void answer(std::span<const std::byte> bytes) override {
    mpi_.Send(bytes.data(), count_of(bytes), mpi_.byte, 0, kAnswer, words_);
  }
  void take_answer(int rank, std::span<std::byte> bytes) override {
    MPI_Status status{};
    MPI_Message message = wait_for(rank, kAnswer, status);
    mpi_.Mrecv(bytes.data(), count_of(bytes), mpi_.byte, &message, MPI_STATUS_IGNORE);
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

  // Rank 0 says why, to its clients too.
  void abort(const std::string& why) override {
    if (rank_ != 0) {
      beats_->give_up(why);
      std::this_thread::sleep_for(RankWatch::kGrace);
    }
    end(fmt::format("{}: {}", beats_->name_of(rank_), why), false, false);
  }

 private:
  [[noreturn]] void end(const std::string& why, bool is_said, bool leader_hangs) const {
    if (!is_said) say_farewell(why);
    session_->abort(leader_hangs);
  }
  void say(std::span<const std::byte> message) {
    for (int peer = 1; peer < size_; ++peer)
      mpi_.Send(message.data(), count_of(message), mpi_.byte, peer, kWord, words_);
  }
  // Sleeps between two looks, which MPI's own waiting does not.
  MPI_Message wait_for(int rank, int tag, MPI_Status& status) {
    std::chrono::microseconds nap = kShortestNap;
    for (;;) {
      int there = 0;
      MPI_Message message{};
      mpi_.Improbe(rank, tag, words_, &there, &message, &status);
      if (there != 0) return message;
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, kLongestNap);
    }
  }

  const std::shared_ptr<MpiSession> session_;
  const MpiLibrary& mpi_;
  const int rank_, size_;
  int neighbours_ = 1;
  MPI_Comm steps_{}, words_{};         // what devices say to one another, and what rank 0 says
  std::vector<MPI_Request> requests_;  // of exchange_all()
  std::unique_ptr<MpiBeats> beats_;
};

// What mpirun tells the processes it starts; 0: nothing.
int told(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

// Between machines MPI's own TCP fails now and then to connect two ranks, and spins while it waits.
std::shared_ptr<Group> connect_ranks(const std::string& link) {
  auto session = std::make_shared<MpiSession>();
  const int here = told({"OMPI_COMM_WORLD_LOCAL_SIZE"});
  const bool is_far = here > 0 && here < session->size;
  if (link == "tcp" || (link.empty() && is_far)) return connect_by_tcp(std::move(session), is_far);
  return std::make_shared<MpiGroup>(std::move(session));
}

}  // namespace

std::shared_ptr<Group> join_mpi(int ranks) {
  const int started = std::max(1, told({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"}));
  if (started != ranks)
    throw_error(ErrorKind::bad_call,
                "--tp and --pp ask for {} processes: start them, `mpirun -n {} ingot ...`; there {} {}", ranks, ranks,
                started == 1 ? "is" : "are", started);
  static const std::shared_ptr<Group> group = with_link(connect_ranks);
  return group;
}

}  // namespace ingot
