// The part of NVIDIA's driver that the CUDA executor uses, found at run time: a program that has it runs where there is
// no driver. Types and numbers are those of the driver's binary interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace softmetal::cuda {

using Result = int;
using Device = int;
using Address = unsigned long long;
using Context = struct OpaqueContext*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using StreamHandle = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using Graph = struct OpaqueGraph*;
using GraphNode = struct OpaqueGraphNode*;
using GraphExec = struct OpaqueGraphExec*;

inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNotReady = 600;
inline constexpr int kAttributeMajor = 75, kAttributeMinor = 76, kAttributeMultiprocessors = 16,
                     kAttributeSharedBytes = 97;  // that a grid may ask for
inline constexpr int kFunctionMaxThreads = 0, kFunctionSharedBytes = 1, kFunctionLocalBytes = 3, kFunctionRegisters = 4,
                     kFunctionMaxDynamicBytes = 8;
inline constexpr unsigned kEventDefault = 0, kEventNoTiming = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kHostPortable = 1, kHostDeviceMap = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kLaunchProgrammaticSerialization = 6;

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int allowed;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
struct KernelNodeParams {
  Function function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;
  Context context;
};

// Name in the driver, name here, parameters.
#define SOFTMETAL_CUDA_CALLS(X)                                                                                      \
  X(cuInit, init, unsigned)                                                                                          \
  X(cuDriverGetVersion, driver_version, int*)                                                                        \
  X(cuDeviceGetCount, device_count, int*)                                                                            \
  X(cuDeviceGet, device_get, Device*, int)                                                                           \
  X(cuDeviceGetName, device_name, char*, int, Device)                                                                \
  X(cuDeviceGetAttribute, device_attribute, int*, int, Device)                                                       \
  X(cuDeviceTotalMem_v2, device_memory, size_t*, Device)                                                             \
  X(cuDevicePrimaryCtxRetain, context_retain, Context*, Device)                                                      \
  X(cuCtxSetCurrent, context_set, Context)                                                                           \
  X(cuMemGetInfo_v2, memory_info, size_t*, size_t*)                                                                  \
  X(cuMemAlloc_v2, allocate, Address*, size_t)                                                                       \
  X(cuMemFree_v2, free, Address)                                                                                     \
  X(cuMemHostAlloc, host_allocate, void**, size_t, unsigned)                                                         \
  X(cuMemFreeHost, host_free, void*)                                                                                 \
  X(cuMemcpyDtoH_v2, copy_to_host, void*, Address, size_t)                                                           \
  X(cuMemcpyAsync, copy, Address, Address, size_t, StreamHandle)                                                     \
  X(cuMemsetD8Async, fill, Address, unsigned char, size_t, StreamHandle)                                             \
  X(cuModuleLoadData, module_load, Module*, const void*)                                                             \
  X(cuModuleUnload, module_unload, Module)                                                                           \
  X(cuModuleGetFunction, module_function, Function*, Module, const char*)                                            \
  X(cuModuleGetGlobal_v2, module_global, Address*, size_t*, Module, const char*)                                     \
  X(cuFuncGetAttribute, function_attribute, int*, int, Function)                                                     \
  X(cuFuncSetAttribute, set_function_attribute, Function, int, int)                                                  \
  X(cuStreamCreate, stream_create, StreamHandle*, unsigned)                                                          \
  X(cuStreamDestroy_v2, stream_destroy, StreamHandle)                                                                \
  X(cuStreamSynchronize, stream_wait, StreamHandle)                                                                  \
  X(cuStreamWaitEvent, stream_wait_event, StreamHandle, Event, unsigned)                                             \
  X(cuEventCreate, event_create, Event*, unsigned)                                                                   \
  X(cuEventDestroy_v2, event_destroy, Event)                                                                         \
  X(cuEventRecord, event_record, Event, StreamHandle)                                                                \
  X(cuEventQuery, event_query, Event)                                                                                \
  X(cuEventSynchronize, event_wait, Event)                                                                           \
  X(cuEventElapsedTime, event_elapsed, float*, Event, Event)                                                         \
  X(cuLaunchHostFunc, launch_host, StreamHandle, void (*)(void*), void*)                                             \
  X(cuLaunchKernelEx, launch, const LaunchConfig*, Function, void**, void**)                                         \
  X(cuStreamBeginCapture_v2, capture_begin, StreamHandle, int)                                                       \
  X(cuStreamEndCapture, capture_end, StreamHandle, Graph*)                                                           \
  X(cuStreamGetCaptureInfo_v3, capture_info, StreamHandle, int*, uint64_t*, Graph*, const GraphNode**, const void**, \
    size_t*)                                                                                                         \
  X(cuGraphInstantiateWithFlags, graph_instantiate, GraphExec*, Graph, unsigned long long)                           \
  X(cuGraphDestroy, graph_destroy, Graph)                                                                            \
  X(cuGraphExecDestroy, exec_destroy, GraphExec)                                                                     \
  X(cuGraphExecKernelNodeSetParams_v2, exec_set_kernel, GraphExec, GraphNode, const KernelNodeParams*)               \
  X(cuGraphLaunch, graph_launch, GraphExec, StreamHandle)                                                            \
  X(cuGetErrorName, error_name, Result, const char**)                                                                \
  X(cuGetErrorString, error_text, Result, const char**)

struct Driver {
#define SOFTMETAL_CUDA_MEMBER(symbol, name, ...) Result (*name)(__VA_ARGS__) = nullptr;
  SOFTMETAL_CUDA_CALLS(SOFTMETAL_CUDA_MEMBER)
#undef SOFTMETAL_CUDA_MEMBER

  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string text(Result result) const;
};

// The driver, loaded once. nullptr where there is none; `reason` then says why.
const Driver* load_driver(std::string* reason);

}  // namespace softmetal::cuda
