// What the arguments of kernels need on every device.
#pragma once

#include "sm/types.h"

namespace sm {

// The value of a function constant before it has one.
template <class T>
T unknown();

template <class T>
inline constexpr uint size_of = sizeof(T);
template <>
inline constexpr uint size_of<void> = 1;
template <>
inline constexpr uint size_of<const void> = 1;
template <class T>
inline constexpr uint align_of = alignof(T);
template <>
inline constexpr uint align_of<void> = 1;
template <>
inline constexpr uint align_of<const void> = 1;

}  // namespace sm
