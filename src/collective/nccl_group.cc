#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <type_traits>

#include "collective/linked_group.h"
#include "collective/links.h"
#include "core/error.h"

// Compiled against NVIDIA's nccl.h; it has never run: that takes a GPU for each rank.
namespace ingot {
namespace {

// The functions that we call, from the library that is found when the program runs.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRank) CommInitRank = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;

  void check(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess) throw_error(ErrorKind::device, "NCCL: {} failed: {}", what, GetErrorString(result));
  }
};

NcclLibrary load_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_error(ErrorKind::declined, "INGOT_LINK=nccl: there is no NCCL here (libnccl.so.2)");
  NcclLibrary nccl;
  const auto take = [library](auto& function, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) throw_error(ErrorKind::declined, "INGOT_LINK=nccl: the NCCL here has no {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  take(nccl.GetUniqueId, "ncclGetUniqueId");
  take(nccl.CommInitRank, "ncclCommInitRank");
  take(nccl.CommDestroy, "ncclCommDestroy");
  take(nccl.GroupStart, "ncclGroupStart");
  take(nccl.GroupEnd, "ncclGroupEnd");
  take(nccl.Send, "ncclSend");
  take(nccl.Recv, "ncclRecv");
  take(nccl.GetErrorString, "ncclGetErrorString");
  return nccl;
}

// Point to point only: NCCL's own sums have an order of their own, and ranks must have the bits of one.
class NcclGroup final : public LinkedGroup {
 public:
  explicit NcclGroup(std::shared_ptr<Group> words) : LinkedGroup(std::move(words)), nccl_(load_nccl()) {
    // Everybody takes the name that rank 0 made up.
    ncclUniqueId own{};
    if (rank() == 0) nccl_.check(nccl_.GetUniqueId(&own), "a name for the group");
    const std::vector<std::byte> first = compare(std::as_bytes(std::span(&own, 1)))[0];
    if (first.size() != sizeof name_) throw_error(ErrorKind::internal, "NCCL: rank 0 has another version of it");
    std::memcpy(&name_, first.data(), sizeof name_);
  }
  ~NcclGroup() override {
    if (joined_ != nullptr) nccl_.CommDestroy(joined_);
  }

  bool on_stream() const override { return true; }

  // All of a group are one kernel of NCCL's. The memory is the GPU's own, and what is encoded behind this on the stream
  // finds it there; nobody waits on the host.
  void exchange_on(void* stream, std::span<const Exchange> with) override {
    // Here the device's context is current on this thread, and all ranks come here first for the same operation.
    if (joined_ == nullptr) nccl_.check(nccl_.CommInitRank(&joined_, size(), name_, rank()), "joining the group");
    auto* const on = static_cast<cudaStream_t>(stream);
    nccl_.check(nccl_.GroupStart(), "an exchange");
    for (const Exchange& one : with) {
      if (!one.out.empty())
        nccl_.check(nccl_.Send(one.out.data(), one.out.size(), ncclUint8, one.peer, joined_, on), "sending");
      if (!one.in.empty())
        nccl_.check(nccl_.Recv(one.in.data(), one.in.size(), ncclUint8, one.peer, joined_, on), "receiving");
    }
    nccl_.check(nccl_.GroupEnd(), "an exchange");
  }

 private:
  const NcclLibrary nccl_;
  ncclUniqueId name_{};
  ncclComm_t joined_ = nullptr;
};

}  // namespace

std::shared_ptr<Group> link_by_nccl(std::shared_ptr<Group> words) {
  return std::make_shared<NcclGroup>(std::move(words));
}

}  // namespace ingot
