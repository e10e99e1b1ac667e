#pragma once

#include <Metal/Metal.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/metal/memory.h"
#include "collective/group.h"

namespace ingot::metal {

// Where the GPU and the group meet. What is to be sent lies in a buffer that both reach, and so does what comes. In the
// middle of a step the GPU signals an event and waits for its next value; a thread of ours sees the first, lets the
// group exchange, and sets the second. The host touches a box between the two only, and waits for nothing while a step
// is encoded.
class Mailboxes {
 public:
  // A part of a box, in words.
  struct Words {
    size_t first = 0, count = 0;
  };
  // What goes to a rank, and what comes from it; either may be empty.
  struct Letter {
    int peer = 0;
    Words out, in;
    bool in_out_box = false;  // what comes goes into the box of what goes
  };

  // Ranks are in stages of `tp` each.
  Mailboxes(MTL::Device* device, Group& group, int tp, Memory& memory);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  Group& all() { return all_; }
  Peers& layer() { return *layer_; }    // the ranks that share its layers
  Peers& stages() { return *stages_; }  // those with the same share of each stage

  // Makes room for so many words each, in a rehearsal.
  void reserve(size_t out_words, size_t in_words);
  BufferView out(Words words) const { return view(out_, words); }
  BufferView in(Words words) const { return view(in_, words); }

  // The GPU goes on once these are exchanged, all at once: by the group on the GPU's stream, if it can, else by our
  // thread; or once that has done something.
  void encode(MTL::CommandBuffer* commands, Peers& with, std::vector<Letter> letters);
  void encode(MTL::CommandBuffer* commands, std::function<void()> act);
  // Or once the host has filled the box of what comes.
  void fill(MTL::CommandBuffer* commands, Words words, std::function<void(float* box)> fill);
  // What was encoded since the last call will be run. Its number, for finish().
  uint64_t submit();
  // What was encoded since the last call will not.
  void drop();
  // Once a step was waited for: `failed` says that it did not run to its end. Throws Error(device) where the group
  // failed.
  void finish(uint64_t step, bool failed);

 private:
  struct Round {
    uint64_t ready = 0;  // what the GPU signals; the next value is what it waits for
    std::function<void()> act;
  };
  static BufferView view(const BufferPtr& buffer, Words words) {
    return {buffer.get(), words.first * 4, words.count * 4};
  }
  void run();
  void act(const std::function<void()>& what);
  const BufferPtr& box_in(const Letter& letter) const { return letter.in_out_box ? out_ : in_; }
  void exchange(Peers& with, const std::vector<Letter>& letters);
  // Of addresses that the host knows, or of those of the GPU.
  std::vector<Exchange> exchanges(const std::vector<Letter>& letters, bool gpu) const;

  Group& all_;
  std::unique_ptr<Peers> layer_, stages_;
  Memory& memory_;
  NS::SharedPtr<MTL::SharedEvent> event_;
  BufferPtr out_, in_;
  uint64_t value_ = 0;  // of the event, when all that is encoded has run
  std::vector<Round> encoded_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Round> submitted_;
  uint64_t dropped_ = 0;  // values up to this one will not be signalled
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ingot::metal
