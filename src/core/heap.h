#pragma once

namespace ingot {

// glibc keeps what was freed for the next allocation: a few large requests would leave a server large for good.
// Elsewhere both do nothing.

// From now on large blocks go back to the system when they are freed. For a process that serves others; once.
void return_large_blocks();
// Gives back what is free now. Takes milliseconds: after work that used much.
void return_free_memory();

}  // namespace ingot
