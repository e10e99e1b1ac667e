#pragma once

// Replaces operator new of the whole test program by one that counts, in every thread.
namespace ingot::test {

void start_counting_allocations();
int stop_counting_allocations();

}  // namespace ingot::test
