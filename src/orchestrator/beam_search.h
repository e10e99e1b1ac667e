#pragma once

#include <string>
#include <vector>

#include "orchestrator/request.h"
#include "orchestrator/scheduler.h"

namespace ingot {

class Tokenizer;

// Called when every beam of the request is parked with its candidates: keeps the best `width` continuations as the new
// beams and adds them to the scheduler. True when the search is over.
bool advance_beams(Request& request, Scheduler& scheduler);

// Finished and unfinished beams, the best first.
std::vector<const Sequence*> ranked_beams(const Request& request);

// The text of a beam without the token that ended it.
std::string beam_text(const Sequence& beam, const Tokenizer& tokenizer);

}  // namespace ingot
