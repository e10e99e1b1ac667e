// The part of Apple's metal-cpp Foundation that Ingot's host code uses, for the software Metal device: the same names,
// the same signatures, the same ownership. What alloc(), new...() and copy() return is owned by the caller; everything
// else belongs to the innermost autorelease pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "NSObject.hpp"
#include "NSSharedPtr.hpp"
#include "NSString.hpp"
#include "NSValues.hpp"
