// Products of large matrices by NVIDIA's cuBLASLt, found at run time: without it there are none.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/cuda_driver.h"
#include "runtime/executor.h"

namespace softmetal {

// Chooses one algorithm for a shape, whatever the number of rows, and none that cuts the columns: a row's bits follow
// from the row and the weights alone.
class CudaGemm {
 public:
  // nullptr where the library is missing or does not start. `library`: its file; empty: the usual names.
  static std::unique_ptr<CudaGemm> load(const std::string& library);
  ~CudaGemm();

  std::string name() const;
  // Chooses the algorithm. An error, or empty.
  std::string prepare(const GemmShape& shape);
  std::string launch(const GemmCommand& command, cuda::StreamHandle stream);

 private:
  struct Calls;
  struct Plan;
  CudaGemm();
  Plan* plan(const GemmShape& shape, std::string* error);

  std::unique_ptr<Calls> calls_;
  void* handle_ = nullptr;
  std::mutex mutex_;
  std::map<GemmShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace softmetal
