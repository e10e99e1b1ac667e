#pragma once

#include <cstdint>
#include <string>

#include "collective/group.h"
#include "core/error.h"
#include "formats/checkpoint.h"
#include "ingot/engine.h"
#include "model/stages.h"

// How the ranks of a group come to run the same model in the same way.
namespace ingot {

// Rank 0's options, but for those that say where a rank runs: the model's path, device, threads, instruction set.
void tell_options(Group& group, const EngineOptions& options);
// Takes them over. False: the group ended first.
bool hear_options(Group& group, EngineOptions& options);

// What a rank says of itself before anything is loaded.
struct RankNote {
  std::string machine;
  std::string version;                                    // of the program
  std::string path;                                       // DeviceInfo::path
  std::string settings;                                   // of the environment, those that decide sizes
  uint64_t weights = 0;                                   // weights_mark()
  int64_t kv_blocks = 0, step_tokens = 0, model_len = 0;  // the most that this rank can take
  std::string error;                                      // why it cannot run its share; empty: it can
  ErrorKind kind = ErrorKind::internal;

  void fail(const Error& why) {
    error = why.what();
    kind = why.kind();
  }
};

// A mark that other weights hardly have: of the tensors' names, formats, shapes, and a few bytes of each.
uint64_t weights_mark(const Checkpoint& checkpoint);

// The machine of each stage of `tp` ranks; `mine` is this rank's.
std::vector<StageHost> compare_hosts(Group& group, int tp, const StageHost& mine);

// Rank 0 says which layers each stage has; none: it could not tell, see agree().
void tell_stages(Group& group, std::span<const Range> stages);
std::vector<Range> hear_stages(Group& group);

// An error that every rank has.
struct AgreedError : Error {
  using Error::Error;
};

// The least of what all ranks can take. Throws AgreedError on all of them, which names the first rank that cannot run
// its share, or that is not as rank 0 is.
RankNote agree(Group& group, const RankNote& mine);

}  // namespace ingot
