// Ranks connected by real sockets of this machine: what they say arrives, strangers stay outside, and who is gone is
// noticed.
#include "collective/tcp_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "collective/rank_watch.h"
#include "core/error.h"
#include "soak.h"

namespace ingot {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = TcpSocket::Clock;
using Bytes = std::vector<std::byte>;

TcpKey key_of(int seed) {
  TcpKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(seed + static_cast<int>(7 * i));
  return key;
}

Bytes bytes_of(size_t count, int seed) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(seed) * 97) >> 3);
  return bytes;
}

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Why a rank has lost its group.
class Loss {
 public:
  TcpLoss handler() {
    return [this](const std::string& reason, bool told) {
      is_said = told;
      reason_.set_value(reason);
    };
  }
  std::string wait() {
    std::future<std::string> reason = reason_.get_future();
    return reason.wait_for(60s) == std::future_status::ready ? reason.get() : "nothing was lost";
  }
  bool is_said = false;  // by rank 0

 private:
  std::promise<std::string> reason_;
};

struct Ranks {
  explicit Ranks(int count) : losses(static_cast<size_t>(count)) {
    for (int rank = 0; rank < count; ++rank) {
      listeners.emplace_back("127.0.0.1");
      // The first two ranks share a machine.
      ranks.push_back(
          {listeners.back().address(), "host-" + std::to_string(rank), rank < 2 ? "a" : std::to_string(rank)});
    }
  }
  std::shared_ptr<Group> join(int rank) {
    const auto i = static_cast<size_t>(rank);
    return listeners[i].join(rank, ranks, key_of(3), 60s, losses[i].handler());
  }
  // use(group) on a thread for each rank.
  void run(const std::function<void(Group&)>& use) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
      threads.emplace_back([this, rank, &use] {
        try {
          use(*join(rank));
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<TcpListener> listeners;
  std::vector<TcpRank> ranks;
  std::vector<Loss> losses;
};

TEST(TcpGroup, CarriesWhatRanksSay) {
  constexpr size_t kMuch = 3 << 20;  // more than the buffers of two sockets: both sides must read while they write
  Ranks(4).run([](Group& group) {
    const int rank = group.rank();
    EXPECT_EQ(group.size(), 4);
    EXPECT_EQ(group.neighbours(), rank < 2 ? 2 : 1);
    EXPECT_EQ(group.machine(), "host-" + std::to_string(rank));
    for (const size_t size : {size_t{1}, size_t{1000}, kMuch})
      for (const int distance : {1, 2, 3}) {
        Bytes in(size);
        group.exchange(rank ^ distance, bytes_of(size, rank), in);
        EXPECT_TRUE(in == bytes_of(size, rank ^ distance)) << size << " bytes of rank " << (rank ^ distance);
      }
    // All of them at once, and more than fits into the sockets.
    std::vector<Bytes> out, in(3, Bytes(kMuch));
    std::vector<Exchange> all;
    for (const int distance : {1, 2, 3}) out.push_back(bytes_of(kMuch, 10 * rank + (rank ^ distance)));
    for (const int distance : {3, 1, 2}) {
      const auto i = static_cast<size_t>(distance - 1);
      all.push_back({.peer = rank ^ distance, .out = out[i], .in = in[i]});
    }
    group.exchange_all(all);
    for (const int distance : {1, 2, 3})
      EXPECT_TRUE(in[static_cast<size_t>(distance - 1)] == bytes_of(kMuch, 10 * (rank ^ distance) + rank)) << distance;
    Bytes far(kMuch);
    if (rank == 3) group.send(0, bytes_of(kMuch, 5));
    if (rank == 0) group.receive(3, far);
    EXPECT_TRUE(rank != 0 || far == bytes_of(kMuch, 5));

    const auto notes = group.compare(bytes_of("note " + std::to_string(rank)));
    ASSERT_EQ(notes.size(), 4u);
    for (int other = 0; other < 4; ++other)
      EXPECT_EQ(notes[static_cast<size_t>(other)], bytes_of("note " + std::to_string(other)));
    if (rank == 0) {
      group.tell(bytes_of("first"));
      group.tell(bytes_of(kMuch, 8));
      return;  // and leaves
    }
    EXPECT_EQ(group.hear(), bytes_of("first"));
    EXPECT_TRUE(group.hear() == bytes_of(kMuch, 8));
    EXPECT_TRUE(group.hear().empty()) << "rank 0 has left";
    EXPECT_TRUE(group.hear().empty());
  });
}

TEST(TcpGroup, LeavesInOrderAndIsNotMissed) {
  Ranks ranks(2);
  auto first = std::async([&] { return ranks.join(0); });
  std::shared_ptr<Group> second = ranks.join(1);
  first.get().reset();
  EXPECT_TRUE(second->hear().empty());
  std::this_thread::sleep_for(400ms);  // its connection is closed by now
  EXPECT_TRUE(second->hear().empty());
  second.reset();
}

TEST(TcpGroup, TurnsStrangersAway) {
  Ranks ranks(2);
  const std::string door = ranks.ranks[0].address;
  auto first = std::async([&] { return ranks.join(0); });
  const auto until = Clock::now() + 60s;
  // One says nothing, one sends garbage, one has another key, one goes at once.
  const TcpSocket silent = TcpSocket::connect(door, until), loud = TcpSocket::connect(door, until);
  EXPECT_TRUE(loud.write(bytes_of(200, 9), until));
  {
    const TcpSocket hasty = TcpSocket::connect(door, until);
  }
  try {
    ranks.listeners[1].join(1, ranks.ranks, key_of(4), 60s);
    FAIL() << "a rank with another key was let in";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did not let this rank in"));
  }
  std::byte one{};
  EXPECT_FALSE(loud.read({&one, 1}, until)) << "an answer to garbage";
  std::shared_ptr<Group> second = ranks.join(1);
  std::shared_ptr<Group> other = first.get();
  other->tell(bytes_of("hello"));
  EXPECT_EQ(second->hear(), bytes_of("hello"));
}

TEST(TcpGroup, IsNotTakenInByAStrangerAtTheAddressOfARank) {
  Ranks ranks(2);
  const auto stranger = std::async([&] {
    const auto until = Clock::now() + 60s;
    std::optional<TcpSocket> caller;
    const TcpSocket listener = TcpSocket::listen("127.0.0.1");
    ranks.ranks[0].address = listener.address();
    auto second = std::async([&] { return ranks.join(1); });
    while (!caller && listener.wait(false, until)) caller = listener.accept();
    EXPECT_TRUE(caller && caller->write(bytes_of(16, 1), until));
    try {
      second.get();
      FAIL() << "it was taken for rank 0";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not of this group"));
    }
  });
}

TEST(TcpGroup, FindsARankAtTheAddressThatCanBeReached) {
  Ranks ranks(2);
  std::string nobody;
  {
    nobody = TcpSocket::listen("127.0.0.1").address();  // no longer
  }
  ranks.ranks[0].address = nobody + " " + ranks.ranks[0].address;
  ranks.run([](Group& group) {
    Bytes in(10);
    group.exchange(1 - group.rank(), bytes_of(10, group.rank()), in);
    EXPECT_EQ(in, bytes_of(10, 1 - group.rank()));
  });
}

TEST(TcpGroup, SaysWhoDidNotCome) {
  Ranks ranks(3);
  try {
    ranks.listeners[0].join(0, ranks.ranks, key_of(3), 1s);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 did not connect to rank 0"));
  }
  EXPECT_THROW(TcpListener("203.0.113.1"), Error) << "no address of this machine";
  EXPECT_THROW(TcpListener("a name"), Error);
}

// A rank that has joined and is then no more: a process that ended, as the kernel shows it to the others.
struct Puppet {
  explicit Puppet(Ranks& ranks, int rank) {
    std::vector<std::string> addresses;
    for (const TcpRank& each : ranks.ranks) addresses.push_back(each.address);
    const TcpSocket nobody = TcpSocket::listen("127.0.0.1");
    links = meet(nobody, rank, addresses, key_of(3), Clock::now() + 60s);
  }
  std::vector<TcpLinks> links;
};

TEST(TcpGroup, NoticesADeadRank) {
  Ranks ranks(2);
  auto first = std::async([&] { return ranks.join(0); });
  auto puppet = std::make_unique<Puppet>(ranks, 1);
  std::shared_ptr<Group> group = first.get();
  auto step = std::async([&] {
    Bytes in(100);
    group->receive(1, in);
  });
  std::this_thread::sleep_for(50ms);
  puppet.reset();
  EXPECT_THAT(ranks.losses[0].wait(), HasSubstr("rank 1 on host-1 is gone (its connection is closed)"));
  EXPECT_THROW(step.get(), Error) << "a step that waits for it fails";
  EXPECT_THROW(group->tell(bytes_of("x")), Error);
}

TEST(TcpGroup, NoticesARankThatHangs) {
  const auto begin = Clock::now();
  Ranks ranks(2);
  auto first = std::async([&] { return ranks.join(0); });
  const Puppet puppet(ranks, 1);  // connected, and says nothing
  std::shared_ptr<Group> group = first.get();
  auto step = std::async([&] {
    Bytes in(100);
    group->receive(1, in);
  });
  EXPECT_THAT(ranks.losses[0].wait(), HasSubstr("rank 1 on host-1 has not answered for 3 s"));
  EXPECT_GT(Clock::now() - begin, 2s) << "a rank may be slow";
  EXPECT_THROW(step.get(), Error);
}

TEST(TcpGroup, NoticesARankThatTalksNonsense) {
  Ranks ranks(2);
  auto first = std::async([&] { return ranks.join(0); });
  const Puppet puppet(ranks, 1);
  std::shared_ptr<Group> group = first.get();
  const uint64_t head[2] = {1, ~uint64_t{0}};  // a word of more bytes than there are
  EXPECT_TRUE(puppet.links[0].words.write(std::as_bytes(std::span(head)), Clock::now() + 60s));
  EXPECT_THAT(ranks.losses[0].wait(), HasSubstr("it said what no rank says"));
}

// Rank 0 says why all end; the others are told, and say nothing.
TEST(TcpGroup, TellsTheOthersWhoIsLost) {
  Ranks ranks(3);
  auto first = std::async([&] { return ranks.join(0); });
  auto second = std::async([&] { return ranks.join(1); });
  auto puppet = std::make_unique<Puppet>(ranks, 2);
  const std::shared_ptr<Group> leads = first.get(), follows = second.get();
  auto step = std::async([&] {
    Bytes in(100);
    follows->receive(2, in);
  });
  puppet.reset();
  EXPECT_THAT(ranks.losses[0].wait(), HasSubstr("rank 2 on host-2 is gone (its connection is closed)"));
  EXPECT_FALSE(ranks.losses[0].is_said);
  EXPECT_THAT(ranks.losses[1].wait(), HasSubstr("rank 2 on host-2 is gone (its connection is closed)"));
  EXPECT_TRUE(ranks.losses[1].is_said) << "rank 0 has";
  EXPECT_THROW(step.get(), Error);
}

// Whoever says something to a rank at that moment does not keep the last word from it.
TEST(TcpGroup, TellsTheOthersWhoIsLostWhileItTalksToThem) {
  Ranks ranks(3);
  auto first = std::async([&] { return ranks.join(0); });
  auto second = std::async([&] { return ranks.join(1); });
  auto puppet = std::make_unique<Puppet>(ranks, 2);
  const std::shared_ptr<Group> leads = first.get(), follows = second.get();
  std::atomic<int> told = 0;
  std::vector<std::future<void>> threads;
  const auto until_it_throws = [&](const std::function<void()>& act) {
    threads.push_back(std::async(std::launch::async, [act] {
      try {
        for (;;) act();
      } catch (const Error&) {
      }
    }));
  };
  for (int talker = 0; talker < 3; ++talker)
    until_it_throws([&] {
      leads->tell(bytes_of(20'000, 1));
      ++told;
    });
  until_it_throws([&] { follows->hear(); });
  Bytes heard(1 << 16);
  const Bytes beat(16);  // that it lives, however long this takes
  while (told < 30)
    if (puppet->links[0].words.read_some(heard) > 0) puppet->links[0].words.write(beat, Clock::now() + 60s);
  puppet.reset();
  EXPECT_THAT(ranks.losses[0].wait(), HasSubstr("rank 2 on host-2 is gone"));
  EXPECT_THAT(ranks.losses[1].wait(), HasSubstr("rank 2 on host-2 is gone"));
  EXPECT_TRUE(ranks.losses[1].is_said);
  for (std::future<void>& thread : threads) thread.get();
}

TEST(TcpGroup, ARankThatGivesUpIsNamedByRank0) {
  Ranks ranks(2);
  auto first = std::async([&] { return ranks.join(0); });
  const Puppet puppet(ranks, 1);
  const std::shared_ptr<Group> group = first.get();
  const std::string why = "the device is on fire";
  const uint64_t head[2] = {5, why.size()};
  EXPECT_TRUE(puppet.links[0].words.write(std::as_bytes(std::span(head)), Clock::now() + 60s));
  EXPECT_TRUE(puppet.links[0].words.write(std::as_bytes(std::span(why)), Clock::now() + 60s));
  EXPECT_EQ(ranks.losses[0].wait(), "rank 1 on host-1: the device is on fire");
}

// It is what the others have ended for: it has nothing to add when it goes on and finds them gone.
TEST(RankWatch, IsQuietInARankThatStoodStillItself) {
  if (test::kSanitized) GTEST_SKIP() << "it forks a process that starts threads";
  const auto end_of = [](bool stands_still) {
    int runs[2];
    if (pipe(runs) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
      RankWatch watch(1, {"host-0", "host-1"}, {0}, [](const std::string&, bool is_said) { _exit(is_said ? 3 : 4); });
      const auto begin = Clock::now();
      if (write(runs[1], "", 1) != 1) _exit(5);
      for (auto before = begin;;) {
        std::this_thread::sleep_for(20ms);
        watch.heard(0);
        const auto now = Clock::now();
        if (now - before > 2s || (!stands_still && now - begin > 300ms)) watch.lost(0, " is gone");
        before = now;
      }
    }
    close(runs[1]);
    char one = 0;
    const bool has_begun = read(runs[0], &one, 1) == 1;
    close(runs[0]);
    if (!has_begun) return -1;
    if (stands_still) {
      kill(child, SIGSTOP);
      std::this_thread::sleep_for(2800ms);
      kill(child, SIGCONT);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(end_of(true), 3);
  EXPECT_EQ(end_of(false), 4);
}

TEST(TcpGroup, EndsTheProcessOfARankThatIsLeftAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Ranks ranks(2);
        auto first = std::async([&] { return ranks.listeners[0].join(0, ranks.ranks, key_of(3), 60s); });
        auto puppet = std::make_unique<Puppet>(ranks, 1);
        const std::shared_ptr<Group> group = first.get();
        puppet.reset();
        group->hear();
        std::this_thread::sleep_for(60s);
      },
      ::testing::ExitedWithCode(1), "ingot: rank 1 on host-1 is gone .its connection is closed.; all ranks end");
}

}  // namespace
}  // namespace ingot
