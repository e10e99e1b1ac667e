#pragma once

#include <memory>
#include <utility>

#include "core/error.h"
#include "ingot/llm.h"
#include "ingot/tokenizer.h"
#include "module.h"

namespace ingot::python {

// The orchestrator until it is closed: what ingot.LLM and ingot.AsyncLLM are made of. Its generations may outlive it.
class LlmCore {
 public:
  explicit LlmCore(std::shared_ptr<Llm> llm) : llm_(std::move(llm)) {}
  ~LlmCore() { close(); }
  LlmCore(const LlmCore&) = delete;
  LlmCore& operator=(const LlmCore&) = delete;

  // Shared, so that a call on another thread ends before what it works on is gone.
  std::shared_ptr<Llm> llm() const {
    if (!llm_) throw_error(ErrorKind::bad_call, "this model was closed: load it again");
    return llm_;
  }
  std::shared_ptr<const Tokenizer> tokenizer() const {
    const std::shared_ptr<Llm> owner = llm();
    if (owner->tokenizer() == nullptr)
      throw_error(ErrorKind::declined, "this model has no tokenizer: give prompts as token ids");
    return {owner, owner->tokenizer()};
  }
  bool closed() const { return !llm_; }

  // Ends what is running.
  void close() {
    std::shared_ptr<Llm> last = std::exchange(llm_, nullptr);
    const nb::gil_scoped_release release;
    last.reset();
  }

 private:
  std::shared_ptr<Llm> llm_;
};

}  // namespace ingot::python
