// Completes a text, printing it as it is generated:
//   complete model.gguf "The capital of France is" 24
#include <cstdio>
#include <cstdlib>
#include <string>

#include <ingot/error.h>
#include <ingot/llm.h>
#include <ingot/tokenizer.h>

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: complete MODEL TEXT [TOKENS]\n"), 2;
  try {
    ingot::LlmOptions options;
    options.engine.model = argv[1];
    options.engine.max_model_len = 1024;
    const auto llm = ingot::Llm::load(options);
    if (llm->tokenizer() == nullptr) return std::fprintf(stderr, "%s: has no tokenizer\n", argv[1]), 1;

    ingot::GenerationRequest request;
    request.prompt = llm->tokenizer()->encode(argv[2]);
    request.max_tokens = argc > 3 ? std::atoi(argv[3]) : 32;
    request.sampling.temperature = 0;
    const auto generation = llm->submit(request);

    std::fputs(argv[2], stdout);
    while (true) {
      const bool done = generation->done();  // asked first: what came before it is taken below
      for (const ingot::ChoiceDelta& delta : generation->take()) std::fputs(delta.text.c_str(), stdout);
      std::fflush(stdout);
      if (done) break;
      generation->wait(std::chrono::milliseconds(100));
    }
    const ingot::GenerationSummary summary = generation->summary();
    std::printf("\n");
    std::fprintf(stderr, "%lld tokens on %s\n", static_cast<long long>(summary.completion_tokens),
                 llm->device_description().c_str());
    return 0;
  } catch (const ingot::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
