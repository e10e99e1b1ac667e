// Command lists on a CUDA stream.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda_driver.h"
#include "runtime/cuda_gemm.h"
#include "runtime/executor.h"

namespace softmetal {

// What the parts of the CUDA executor share.
struct CudaDevice {
  const cuda::Driver* driver = nullptr;
  cuda::Device device = 0;
  cuda::Context context = nullptr;
  bool overlapped = false;  // a grid may start while the one before it ends
  bool graphs = true;
  std::string fault_kernel;          // as Options has them
  mutable uint64_t faults_left = 0;  // until the fault; under the stream's lock
  std::unique_ptr<CudaGemm> gemm;    // none without cuBLASLt

  bool faulty(const std::string& name) const {
    return faults_left > 0 && name.starts_with(fault_kernel) && --faults_left == 0;
  }
  // Every thread that calls the driver says which GPU it means.
  void enter() const { driver->context_set(context); }
};

class CudaMemory : public Memory {
 public:
  CudaMemory(std::shared_ptr<const CudaDevice> device, size_t bytes, Storage storage, bool tracked);
  ~CudaMemory() override;
  void* host() override { return host_; }
  uint64_t device_address() const override { return address_; }

 private:
  std::shared_ptr<const CudaDevice> device_;
  void* host_ = nullptr;
  cuda::Address address_ = 0;
};

class CudaKernel : public Kernel {
 public:
  ~CudaKernel() override;
  std::shared_ptr<const CudaDevice> device;
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  // Parameters of the grid, in order.
  struct Parameter {
    unsigned index = 0;
    bool threadgroup = false;
    bool by_value = false;
    size_t bytes = 0;  // by value: of the type
  };
  std::vector<Parameter> parameters;
};

// One dispatch, ready to launch. Parameters lie in one block of bytes, so that two launches can be compared.
struct CudaLaunch {
  CudaKernel* kernel = nullptr;
  Extent grid, group;
  uint32_t shared_bytes = 0;
  uint32_t first_byte = 0, byte_count = 0;    // in CudaLaunches::bytes
  uint32_t first_offset = 0, parameters = 0;  // in CudaLaunches::offsets
};
struct CudaLaunches {
  std::vector<CudaLaunch> list;
  std::vector<std::byte> bytes;
  std::vector<uint32_t> offsets;  // of each parameter in `bytes`
  void clear() {
    list.clear();
    bytes.clear();
    offsets.clear();
  }
};

// A run of dispatches that was seen before, as a graph. Grids and parameters that changed since are set one by one.
class CudaGraph {
 public:
  CudaGraph(const CudaDevice& device, cuda::StreamHandle stream, const CudaLaunches& launches, std::string& error);
  ~CudaGraph();
  bool matches(const CudaLaunches& launches) const;
  std::string launch(cuda::StreamHandle stream, const CudaLaunches& launches);

  uint64_t last_use = 0;

 private:
  const CudaDevice& device_;
  cuda::Graph graph_ = nullptr;  // the nodes are its
  cuda::GraphExec exec_ = nullptr;
  std::vector<cuda::GraphNode> nodes_;
  CudaLaunches last_;
};

// Launches everything in the thread that submits. Lists are completed, in order, by the threads that wait for them;
// where a handler is to be told, by a thread of the stream.
class CudaStream : public Stream {
 public:
  explicit CudaStream(std::shared_ptr<const CudaDevice> device);
  ~CudaStream() override;
  void submit(std::unique_ptr<CommandList> list, Done done, bool tell) override;
  bool complete_one() override;

 private:
  struct Item {
    std::unique_ptr<CommandList> list;
    Done done;
    std::string error;
    cuda::Event start = nullptr, end = nullptr;
  };
  void launch(CommandList& list, std::string& error);
  void launch_all(std::string& error);
  std::string fork();
  std::string join();
  void one(CommandList& list, const DispatchCommand& command, std::string& error);
  cuda::Event new_event();

  std::shared_ptr<const CudaDevice> device_;
  cuda::StreamHandle stream_ = nullptr;
  cuda::StreamHandle beside_ = nullptr;              // of copies that run beside; made when they first do
  cuda::Event forked_ = nullptr, joined_ = nullptr;  // where it begins, and ends
  std::mutex submitting_, completing_, queue_mutex_;
  std::deque<Item> queue_;
  std::vector<cuda::Event> spare_events_;
  cuda::Event last_end_ = nullptr;  // of the list completed last
  double last_end_time_ = 0;
  CudaLaunches launches_;
  std::vector<std::unique_ptr<CudaGraph>> graphs_;
  std::vector<uint64_t> seen_;  // hashes of runs launched once
  uint64_t uses_ = 0;
  std::vector<std::thread> tellers_;
};

// Launches one dispatch on a stream; CUDA's answer.
cuda::Result launch_grid(const CudaDevice& device, cuda::StreamHandle stream, const CudaLaunches& launches,
                         const CudaLaunch& launch);

}  // namespace softmetal
