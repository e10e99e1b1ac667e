#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"

namespace ingot {

struct CpuOptions {
  int threads = 0;  // 0: one for each CPU this process may use
  std::string isa;  // empty: the best that runs here; see backend/cpu/isa.h
  // Called while weights are loaded with source ranges that will not be read again.
  std::function<void(std::span<const std::byte>)> drop_pages;
};

// The CPU as a device. Operations are recorded while a step is encoded; submit() hands the list to the thread pool as
// one job, and the workers walk it together.
//
// The backend may be used by one thread at a time. The two rings must be waited for in the order of submission.
class CpuBackend : public Backend {
 public:
  // For tests: the next submitted step fails as if the device had.
  virtual void inject_failure() = 0;
};

std::unique_ptr<CpuBackend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace ingot
