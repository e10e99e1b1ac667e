#pragma once

#include <memory>
#include <string>

namespace ingot {

class Tokenizer;

// The tokenizer of a model, given as open_model() takes it; throws Error(declined) when it has none.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& model);

}  // namespace ingot
