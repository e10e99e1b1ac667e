// The Metal standard library for kernels that clang compiles as C++. Includes no header of the C or C++ library: their
// ::abs and ::exp beside `using namespace metal` would make calls ambiguous.
#pragma once

// Kernels that become a grid of a GPU: SM_CUDA, an NVIDIA GPU's; SM_AGX, an Apple GPU's, to look at its instructions.
#if defined(SM_CUDA) || defined(SM_AGX)
#define SM_GRID
#pragma clang force_cuda_host_device begin
#endif
#include "sm/abi.h"
#include "sm/atomic.h"
#include "sm/integer.h"
#include "sm/math.h"
#include "sm/types.h"
#include "sm/vector.h"
#ifdef SM_GRID
#include "sm/grid.h"
#endif
#if defined(SM_AGX)
#include "sm/agx/matrix.h"
#include "sm/agx/runtime.h"
#include "sm/agx/simdgroup.h"
#elif defined(SM_CUDA)
#include "sm/cuda/matrix.h"
#include "sm/cuda/runtime.h"
#include "sm/cuda/simdgroup.h"
#include "sm/cuda/warpgroups.h"
#else
#include "sm/bind.h"
#include "sm/matrix.h"
#include "sm/runtime.h"
#include "sm/simdgroup.h"
#endif
#ifdef SM_TRACE
#include "sm/trace.h"
#endif

// Address spaces are checked by the lint; here all memory is alike.
#define device
#define thread
#define threadgroup
#define constant const
