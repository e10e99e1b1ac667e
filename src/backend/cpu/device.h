#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "collective/group.h"

namespace ingot {

struct CpuOptions {
  int threads = 0;       // 0: one for each CPU this process may use
  std::string isa;       // empty: the best that runs here; see backend/cpu/isa.h
  bool profile = false;  // time every operation: Backend::take_profile()
  DropPages drop_pages;
  Group* group = nullptr;  // that the device is a rank of; it outlives the device
  int tp = 1;              // ranks of it that share a layer
};

// The CPU as a device. Operations are kept while a step is encoded; submit() hands the list to the thread pool as one
// job, and the workers walk it together.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace ingot
