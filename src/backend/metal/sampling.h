#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/inventory.h"
#include "backend/metal/memory.h"
#include "backend/op.h"
#include "step/view.h"

namespace ingot::metal {

struct Context;

// Chooses tokens on the GPU; what is chosen is as backend/cpu/sampling.h says. Sums of probabilities are exact
// integers here, so a draw may differ from the CPU's where a random number falls within rounding of a boundary.
class Sampler {
 public:
  static size_t bytes(const SamplerLayout& layout);
  Sampler(const SamplerLayout& layout, Memory& memory);

  // Room for the rows of a step's output.
  void create_rows(const OutputLayout& output, Memory& memory);

  // Looks at a step's parameters in host memory before it is encoded: which kernels it needs, whether there is room.
  void prepare(const StepView& step);

  void reset_slots(Context& context);
  void sample(const SampleOp& op, Context& context);

  // What the step before `number` sampled: int32 [rows]. `number` counts steps.
  BufferView previous_tokens(uint64_t number) const;

 private:
  SamplerLayout layout_;
  OutputLayout output_;
  BufferPtr history_;      // int32 [slots, max tokens]: prompt, then output
  BufferPtr counts_;       // int32 [slots, 2]: prompt, output
  BufferPtr seen_;         // uint32 [slots, vocab]: occurrences in the output; top bit: is in the prompt
  BufferPtr work_;         // f32 [work rows, vocab]: processed logits
  BufferPtr chunks_;       // statistics [rows, chunks]
  BufferPtr last_tokens_;  // int32 [2][rows]
  int64_t work_rows_ = 0;
  int64_t max_rows_ = 0;
  bool processes_ = false;  // the step being encoded has processed rows
};

}  // namespace ingot::metal
