// Stand-in for Apple's header: just enough for metal-cpp to be parsed on Linux.
#pragma once
#include <objc/runtime.h>
extern "C" void objc_msgSend(void);
extern "C" void objc_msgSend_stret(void);
extern "C" void objc_msgSend_fpret(void);
