#pragma once

#include <cstdint>

#include "ingot/engine.h"
#include "orchestrator/pacer.h"

// What steps take before anybody waits for one. Blocks are written: only while they hold nothing.
namespace ingot {

// The shortest time, in microseconds, of a step of so many sequences with so many rows each; the last row of a sequence
// draws a token, or all of them do. `given_width`: of the states that a head is given of each row, and gives of those
// that draw.
double measured_step_us(Engine& engine, int32_t sequences, int32_t rows, bool all_draw, int64_t given_width = 0);

// Tells the pacer what steps take whose rows all draw a token: 1, 2, 4, ... rows, as long as they are quick.
void expect_rows(Engine& engine, Pacer& pacer);

// What it takes to save a block to host memory, or to load one, of the host or of the device, in microseconds; 0: there
// are no host blocks. What the first blocks of both contain is lost.
double measured_move_us(Engine& engine);

}  // namespace ingot
