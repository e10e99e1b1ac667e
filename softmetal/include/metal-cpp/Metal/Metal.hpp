// The part of Apple's metal-cpp that Ingot's host code uses, for the software Metal device: the same names and
// signatures. The include path chooses between Apple's headers and these. What is missing here is missing on purpose: a
// call that does not compile is better than one that does nothing.
#pragma once

#include <Foundation/Foundation.hpp>

#include "MTLCommand.hpp"
#include "MTLDevice.hpp"
#include "MTLLibrary.hpp"
#include "MTLResource.hpp"
#include "MTLTypes.hpp"
