#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/layout.h"

namespace ingot {

// Which format the matrices of a model get. Norms, biases, routers and tables of positions stay as they are, and so
// does a matrix that is in blocks already or whose rows are no multiple of 32. q4_k gives way to q5_0 where rows are no
// multiple of 256.
struct QuantScheme {
  DType layers = DType::q8_0;  // matrices of the layers, experts included
  DType tables = DType::q8_0;  // the token embedding and the head: what they lose reaches every logit
};

// "int8": q8_0 everywhere. "int4": q4_k, the embedding and the head q8_0. Throws bad_call for anything else.
QuantScheme parse_quantize(std::string_view name);

// `source` with its matrices in other formats, each computed when it is asked for (Checkpoint::compute) on `threads`
// threads (0: one a core). Throws bad_call when there is nothing to quantize, unless that is not `required`.
std::shared_ptr<Checkpoint> quantize_checkpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config,
                                                NameStyle style, const QuantScheme& scheme, int threads,
                                                bool required = true);

}  // namespace ingot
