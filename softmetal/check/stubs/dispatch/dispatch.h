// Stand-in for Apple's header: just enough for metal-cpp to be parsed on Linux.
#pragma once
typedef struct dispatch_queue_s* dispatch_queue_t;
typedef struct dispatch_data_s* dispatch_data_t;
