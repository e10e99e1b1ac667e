// What every kernel file starts with. The build joins this and the .metal files into one source, so names that a file
// keeps to itself carry the file's name as a prefix, and nothing here may depend on the order of the files.
#pragma once

#include <metal_stdlib>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>

using namespace metal;

// INGOT_BFLOAT is defined where the language has bfloat (Metal 3.1) and the device is to use it.
#ifndef INGOT_BFLOAT
#define INGOT_BFLOAT 1
#endif

// Function constants by number: 0-19 norms, embedding and other small operations; 20-49 matrix products;
// 50-69 attention; 70-89 sampling.
