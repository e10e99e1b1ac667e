// The Metal standard library for kernels that clang compiles as C++. Includes no header of the C or C++ library: their
// ::abs and ::exp beside `using namespace metal` would make calls ambiguous.
#pragma once

#include "sm/abi.h"
#include "sm/atomic.h"
#include "sm/bind.h"
#include "sm/integer.h"
#include "sm/math.h"
#include "sm/matrix.h"
#include "sm/runtime.h"
#include "sm/simdgroup.h"
#include "sm/types.h"
#include "sm/vector.h"
#ifdef SM_TRACE
#include "sm/trace.h"
#endif

// Address spaces are checked by the lint; here all memory is alike.
#define device
#define thread
#define threadgroup
#define constant const
