#pragma once

#include <cstdint>

#include "core/threads.h"

// Which experts each row of a step goes to, and the sum of what they give. Called by every worker of a job alike.
namespace ingot::cpu {

struct RouteCall {
  int64_t rows = 0, experts = 0, per_token = 0;
  bool normalize = false;
  float* logits = nullptr;    // [rows, experts]; used up
  int32_t* ids = nullptr;     // [rows, per_token]
  float* weights = nullptr;   // [rows, per_token]
  int32_t* order = nullptr;   // [pairs]
  int32_t* places = nullptr;  // [pairs]
  int32_t* starts = nullptr;  // [experts + 1]
};
void route(const RouteCall& call, Worker& worker);

struct ExpertSumCall {
  int64_t rows = 0, per_token = 0, dim = 0;
  const float* weights = nullptr;   // [rows, per_token]
  const int32_t* places = nullptr;  // [rows, per_token]
  const float* in = nullptr;        // [pairs, dim]
  float* out = nullptr;             // [rows, dim]
};
void expert_sum(const ExpertSumCall& call, Worker& worker);

}  // namespace ingot::cpu
