#pragma once

#include "ingot/step.h"
#include "module.h"

namespace ingot::python {

// A StepResult as NumPy arrays; shapes in step.cc where they are bound.
struct ResultArrays {
  nb::object tokens, logprobs, ranks, top_ids, top_values, logits;
  nb::dict stats;
};

ResultArrays to_arrays(const StepResult& result);  // needs the GIL

}  // namespace ingot::python
