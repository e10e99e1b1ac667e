#include "backend/metal/mailboxes.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "backend/metal/host_hooks.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr uint64_t kLookMs = 100;  // how often a wait for the GPU looks whether it is still wanted

}  // namespace

Mailboxes::Mailboxes(MTL::Device* device, Group& group, int tp, Memory& memory)
    : all_(group),
      layer_(layer_peers(group, tp)),
      stages_(stage_peers(group, tp)),
      memory_(memory),
      event_(NS::TransferPtr(device->newSharedEvent())),
      thread_([this] { run(); }) {}

Mailboxes::~Mailboxes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Mailboxes::reserve(size_t out_words, size_t in_words) {
  for (const auto& [box, words] : {std::pair(&out_, out_words), std::pair(&in_, in_words)})
    if (words > 0 && (!*box || (*box)->length() < words * 4)) {
      *box = memory_.new_shared(words * 4, "mailbox");
      memory_.commit_residency();
    }
}

void Mailboxes::encode(MTL::CommandBuffer* commands, Peers& with, std::vector<Letter> letters) {
  if (with.on_stream())
    return host::encode_call(commands, [this, &with, letters = std::move(letters)](void* stream) {
      act([&] { with.exchange_on(stream, exchanges(letters, true)); });
    });
  encode(commands, [this, &with, letters = std::move(letters)] { exchange(with, letters); });
}

void Mailboxes::encode(MTL::CommandBuffer* commands, std::function<void()> act) {
  commands->encodeSignalEvent(event_.get(), value_ + 1);
  commands->encodeWait(event_.get(), value_ + 2);
  encoded_.push_back({value_ + 1, std::move(act)});
  value_ += 2;
}

void Mailboxes::fill(MTL::CommandBuffer* commands, Words words, std::function<void(float* box)> fill) {
  encode(commands, [this, words, fill = std::move(fill)] {
    host::host_access(view(in_, words), true);
    fill(static_cast<float*>(in_->contents()) + words.first);
  });
}

uint64_t Mailboxes::submit() {
  {
    const std::lock_guard lock(mutex_);
    std::move(encoded_.begin(), encoded_.end(), std::back_inserter(submitted_));
  }
  encoded_.clear();
  changed_.notify_all();
  return value_;
}

void Mailboxes::drop() {
  if (!encoded_.empty()) value_ = encoded_.front().ready - 1;
  encoded_.clear();
}

void Mailboxes::finish(uint64_t step, bool failed) {
  const std::lock_guard lock(mutex_);
  if (failed) dropped_ = std::max(dropped_, step);
  if (!failure_.empty())
    throw_error(ErrorKind::device, "gpu: rank {} could not speak to the others: {}", all_.rank(), failure_);
}

void Mailboxes::run() {
  for (;;) {
    Round round;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !submitted_.empty(); });
      if (stopping_) return;
      round = std::move(submitted_.front());
      submitted_.pop_front();
    }
    const auto wanted = [&] {
      const std::lock_guard lock(mutex_);
      return !stopping_ && round.ready > dropped_;
    };
    bool signalled = false;
    while (!signalled && wanted()) signalled = event_->waitUntilSignaledValue(round.ready, kLookMs);
    if (!signalled) continue;
    act(round.act);
    event_->setSignaledValue(round.ready + 1);
  }
}

// A group that has failed once is not asked again: the GPU goes on, and what it computes is not looked at.
void Mailboxes::act(const std::function<void()>& what) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
  }
  try {
    what();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error.what();
  }
}

void Mailboxes::exchange(Peers& with, const std::vector<Letter>& letters) {
  for (const Letter& letter : letters) {
    if (letter.out.count > 0) host::host_access(view(out_, letter.out), false);
    if (letter.in.count > 0) host::host_access(view(box_in(letter), letter.in), true);
  }
  with.exchange_all(exchanges(letters, false));
}

std::vector<Exchange> Mailboxes::exchanges(const std::vector<Letter>& letters, bool gpu) const {
  const auto bytes = [gpu](const BufferPtr& box, Words words) {
    if (words.count == 0) return std::span<std::byte>();
    auto* const base = gpu ? reinterpret_cast<std::byte*>(box->gpuAddress()) : static_cast<std::byte*>(box->contents());
    return std::span(base + words.first * 4, words.count * 4);
  };
  std::vector<Exchange> all;
  for (const Letter& letter : letters)
    all.push_back({letter.peer, bytes(out_, letter.out), bytes(box_in(letter), letter.in)});
  return all;
}

}  // namespace ingot::metal
