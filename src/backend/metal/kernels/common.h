// What every kernel file starts with. The build joins this and the .metal files into one source, so names that a file
// keeps to itself carry its subject as a prefix, and nothing may depend on the order of the files.
#pragma once

#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

using namespace metal;

// 0 where the device or its language has no bfloat: the kernels for it are then left out.
#ifndef INGOT_BFLOAT
#define INGOT_BFLOAT 1
#endif

// Function constants by number: 0-19 norms and other small operations; 20-49 matrix products; 50-69 attention; 70-89
// sampling.
