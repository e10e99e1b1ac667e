#pragma once

#include "ingot/step.h"

namespace ingot {

class GgufFile;
class JsonView;

// What a model's makers say about sampling. A value that makes no sense counts as none: it is advice.
SamplingAdvice read_sampling_advice(const JsonView& generation_config);
SamplingAdvice read_sampling_advice(const GgufFile& file);  // general.sampling.*

}  // namespace ingot
