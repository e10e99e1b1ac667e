// Stand-in for Apple's header: just enough for metal-cpp to be parsed on Linux.
#pragma once
typedef struct __IOSurface* IOSurfaceRef;
