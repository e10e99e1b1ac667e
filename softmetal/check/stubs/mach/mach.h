// Stand-in for Apple's header: just enough for metal-cpp to be parsed on Linux.
#pragma once
typedef int kern_return_t;
typedef unsigned int task_id_token_t;
