#include <dlfcn.h>
#include <jaccl/jaccl.h>

#include "collective/linked_group.h"
#include "collective/links.h"
#include "core/error.h"

// Compiled against JACCL's own headers, which come with PyPI's mlx-metal; it has never run: that takes Macs with
// Thunderbolt 5.
namespace ingot {
namespace {

using Init = std::shared_ptr<jaccl::Group> (*)(bool strict);
static_assert(static_cast<Init>(&jaccl::init) != nullptr);

// Loaded when it is asked for, as MPI is. Its one function of these that we call is C++'s, so it has a long name.
Init find_init() {
  void* library = dlopen("libjaccl.dylib", RTLD_NOW | RTLD_LOCAL);
  void* init = library != nullptr ? dlsym(library, "_ZN5jaccl4initEb") : nullptr;
  if (init == nullptr)
    throw_error(ErrorKind::declined, "INGOT_LINK=jaccl: there is no libjaccl.dylib here (PyPI's mlx-metal has one)");
  return reinterpret_cast<Init>(init);
}

// JACCL moves bytes between memory of the host, which on a Mac is the GPU's too: mailboxes are what it takes. Its own
// sums have an order of their own, so we only send and receive.
class JacclGroup final : public LinkedGroup {
 public:
  explicit JacclGroup(std::shared_ptr<Group> words) : LinkedGroup(std::move(words)), link_(find_init()(true)) {
    if (!link_ || link_->size() != size() || link_->rank() != rank())
      throw_error(ErrorKind::bad_call,
                  "INGOT_LINK=jaccl: JACCL says rank {} of {}, MPI says {} of {}; set JACCL_RANK to MPI's",
                  link_ ? link_->rank() : 0, link_ ? link_->size() : 0, rank(), size());
  }

  // The lower of two ranks sends first: a send may wait until the other receives.
  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    if (rank() < peer) send(peer, out);
    receive(peer, in);
    if (rank() > peer) send(peer, out);
  }
  void send(int peer, std::span<const std::byte> bytes) override { link_->send(bytes.data(), bytes.size(), peer); }
  void receive(int peer, std::span<std::byte> bytes) override { link_->recv(bytes.data(), bytes.size(), peer); }
  // One after the other, in the order that the seam asks for.
  void exchange_all(std::span<const Exchange> with) override { Group::exchange_all(with); }

 private:
  std::shared_ptr<jaccl::Group> link_;
};

}  // namespace

std::shared_ptr<Group> link_by_jaccl(std::shared_ptr<Group> words) {
  return std::make_shared<JacclGroup>(std::move(words));
}

}  // namespace ingot
