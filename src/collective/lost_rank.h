#pragma once

#include <functional>
#include <string>

// What a process does about another rank that is gone, once it is noticed (rank_watch.h). From any thread.
namespace ingot {

// `farewell` is called on a thread of its own, with what happened, before this process ends; it has 1.2 seconds and
// must not wait for a step. Empty: there is nothing to do.
void on_lost_rank(std::function<void(const std::string& what)> farewell);

// This process was told to end, which is what mpirun tells all of them a second after one died: from now on little
// silence is taken for death.
void doubt_ranks();
bool ranks_are_doubted();

// The line on stderr; then what on_lost_rank() was given last, for at most 1.25 seconds.
void say_farewell(const std::string& what);

}  // namespace ingot
