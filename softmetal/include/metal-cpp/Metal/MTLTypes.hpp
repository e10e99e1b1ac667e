#pragma once

#include <Foundation/Foundation.hpp>
#include <cstdint>

namespace MTL {

class Device;
class Buffer;
class Heap;
class Library;
class Function;
class CommandQueue;
class CommandBuffer;
class CommandEncoder;
class ComputeCommandEncoder;
class BlitCommandEncoder;
class ComputePipelineState;
class Resource;

using GPUAddress = uint64_t;
using Timestamp = uint64_t;

struct Size {
  Size() = default;
  Size(NS::UInteger w, NS::UInteger h, NS::UInteger d) : width(w), height(h), depth(d) {}
  static Size Make(NS::UInteger w, NS::UInteger h, NS::UInteger d) { return Size(w, h, d); }
  NS::UInteger width = 0, height = 0, depth = 0;
};

struct SizeAndAlign {
  NS::UInteger size, align;
};

struct DispatchThreadgroupsIndirectArguments {
  uint32_t threadgroupsPerGrid[3];
};

enum CPUCacheMode : NS::UInteger { CPUCacheModeDefaultCache = 0, CPUCacheModeWriteCombined = 1 };
enum StorageMode : NS::UInteger {
  StorageModeShared = 0,
  StorageModeManaged = 1,
  StorageModePrivate = 2,
  StorageModeMemoryless = 3,
};
enum HazardTrackingMode : NS::UInteger {
  HazardTrackingModeDefault = 0,
  HazardTrackingModeUntracked = 1,
  HazardTrackingModeTracked = 2,
};
using ResourceOptions = NS::UInteger;
enum : ResourceOptions {
  ResourceCPUCacheModeDefaultCache = 0,
  ResourceCPUCacheModeWriteCombined = 1,
  ResourceStorageModeShared = 0,
  ResourceStorageModeManaged = 1 << 4,
  ResourceStorageModePrivate = 1 << 5,
  ResourceHazardTrackingModeDefault = 0,
  ResourceHazardTrackingModeUntracked = 1 << 8,
  ResourceHazardTrackingModeTracked = 1 << 9,
};
using ResourceUsage = NS::UInteger;
enum : ResourceUsage { ResourceUsageRead = 1, ResourceUsageWrite = 1 << 1 };
using BarrierScope = NS::UInteger;
enum : BarrierScope { BarrierScopeBuffers = 1, BarrierScopeTextures = 1 << 1 };
using PipelineOption = NS::UInteger;
enum : PipelineOption { PipelineOptionNone = 0 };
enum DispatchType : NS::UInteger { DispatchTypeSerial = 0, DispatchTypeConcurrent = 1 };
enum CommandBufferStatus : NS::UInteger {
  CommandBufferStatusNotEnqueued = 0,
  CommandBufferStatusEnqueued = 1,
  CommandBufferStatusCommitted = 2,
  CommandBufferStatusScheduled = 3,
  CommandBufferStatusCompleted = 4,
  CommandBufferStatusError = 5,
};
enum CommandBufferError : NS::UInteger { CommandBufferErrorNone = 0, CommandBufferErrorInternal = 1 };
enum LibraryError : NS::UInteger {
  LibraryErrorUnsupported = 1,
  LibraryErrorInternal = 2,
  LibraryErrorCompileFailure = 3,
  LibraryErrorFunctionNotFound = 5,
  LibraryErrorFileNotFound = 6,
};
enum LanguageVersion : NS::UInteger {
  LanguageVersion2_4 = 131076,
  LanguageVersion3_0 = 196608,
  LanguageVersion3_1 = 196609,
  LanguageVersion3_2 = 196610,
};
enum MathMode : NS::Integer { MathModeSafe = 0, MathModeRelaxed = 1, MathModeFast = 2 };
enum MathFloatingPointFunctions : NS::Integer {
  MathFloatingPointFunctionsFast = 0,
  MathFloatingPointFunctionsPrecise = 1,
};
enum LibraryOptimizationLevel : NS::Integer { LibraryOptimizationLevelDefault = 0, LibraryOptimizationLevelSize = 1 };
enum GPUFamily : NS::Integer {
  GPUFamilyApple1 = 1001,
  GPUFamilyApple2 = 1002,
  GPUFamilyApple3 = 1003,
  GPUFamilyApple4 = 1004,
  GPUFamilyApple5 = 1005,
  GPUFamilyApple6 = 1006,
  GPUFamilyApple7 = 1007,
  GPUFamilyApple8 = 1008,
  GPUFamilyApple9 = 1009,
  GPUFamilyApple10 = 1010,
  GPUFamilyMac2 = 2002,
  GPUFamilyCommon1 = 3001,
  GPUFamilyCommon2 = 3002,
  GPUFamilyCommon3 = 3003,
  GPUFamilyMetal3 = 5001,
  GPUFamilyMetal4 = 5002,
};

#define SOFTMETAL_DATA_TYPES(X)                                                                                   \
  X(Float, 3)                                                                                                     \
  X(Half, 16)                                                                                                     \
  X(Int, 29) X(UInt, 33) X(Short, 37) X(UShort, 41) X(Char, 45) X(UChar, 49) X(Bool, 53) X(Long, 81) X(ULong, 85) \
      X(BFloat, 121)
enum DataType : NS::UInteger {
  DataTypeNone = 0,
#define SOFTMETAL_DATA_TYPE(name, value) \
  DataType##name = value, DataType##name##2 = value + 1, DataType##name##3 = value + 2, DataType##name##4 = value + 3,
  SOFTMETAL_DATA_TYPES(SOFTMETAL_DATA_TYPE)
#undef SOFTMETAL_DATA_TYPE
};

}  // namespace MTL
