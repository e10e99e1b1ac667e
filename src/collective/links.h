#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collective/group.h"

// How ranks that mpirun has started are connected. Links of makers of GPUs are a file each: both are compiled against
// the headers of their libraries and have never run.
namespace ingot {

// By what INGOT_LINK asks for: "mpi", "tcp" (empty: whichever suits), which connect() knows; "nccl" and "jaccl" on top
// of one of these.
std::shared_ptr<Group> with_link(const std::function<std::shared_ptr<Group>(const std::string& link)>& connect);

// NVIDIA's library, between GPUs: what a GPU does in a step goes from its memory to another's in the order of its
// stream. Throws Error(declined) where there is none.
std::shared_ptr<Group> link_by_nccl(std::shared_ptr<Group> words);

// Apple's, between Macs, by RDMA over Thunderbolt (macOS 26.2): from mailbox to mailbox. Which port leads to which rank
// is told as JACCL wants it told: JACCL_RANK, JACCL_COORDINATOR, JACCL_IBV_DEVICES. Throws Error(declined) where it
// cannot.
std::shared_ptr<Group> link_by_jaccl(std::shared_ptr<Group> words);

}  // namespace ingot
