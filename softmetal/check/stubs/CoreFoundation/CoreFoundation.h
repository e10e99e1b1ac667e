// Stand-in for Apple's header: just enough for metal-cpp to be parsed on Linux.
#pragma once
#include <math.h>
typedef double CFTimeInterval;
typedef const struct __CFString* CFStringRef;
extern "C" CFStringRef __CFStringMakeConstantString(const char* text);
