#pragma once

#include <memory>
#include <string>

namespace ingot {

class Tokenizer;

// The tokenizer of a model, given as open_model() takes it; throws Error(declined) when it has none. A dummy model is
// a folder whose weights are made up.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& model, bool dummy = false);

}  // namespace ingot
