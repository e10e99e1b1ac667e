#pragma once

#include "ingot/llm.h"
#include "orchestrator/request.h"
#include "orchestrator/scheduler.h"

namespace ingot {

// An LlmStats with empty histograms, their buckets those of vLLM so that its dashboards fit.
LlmStats empty_stats();

void observe(Histogram& histogram, double value);

// Adds a finished request to the totals.
void observe_request(LlmStats& stats, const Request& request, FinishReason reason);

// What is in the tiers of the prefix cache, and went between them.
void observe_tiers(LlmStats& stats, const SchedulerCounts& counts, const PrefixTierCounts& tiers);
void observe_disk(LlmStats& stats, const DiskCounts& disk);

double seconds_between(Clock::time_point from, Clock::time_point to);

}  // namespace ingot
