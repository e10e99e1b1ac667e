#pragma once

#include <cstdint>
#include <vector>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/layout.h"

namespace ingot {

// A part of a model's layers: stages are one behind the other, on ranks of their own.
struct Stage {
  int index = 0, count = 1;
  Range layers;  // never empty

  bool first() const { return index == 0; }
  bool last() const { return index == count - 1; }
};

// What one rank of a group has of a model: all of it when it is alone.
//
// The bits of a model do not depend on how many ranks it has. Where outputs of a product are shared (qkv, gate and up,
// the head), each of them is one whole dot product on some rank. Where columns are shared (attention output, down), a
// device sums them in four fixed slices and adds those two by two, on one rank too; ranks are cut where slices end, and
// their sums are added in the same order. Experts stay whole: what four fixed groups of them give is added likewise.
struct ModelShare {
  static constexpr int kSlices = MatrixSpec::kMostSlices;

  int rank = 0, ranks = 1;  // among those that share its layers
  Stage stage;
  Range heads;     // query heads
  Range kv_heads;  // those that serve them: two ranks may both have one
  Range ffn;       // of a dense MLP
  Range experts;
  Range vocab;                       // rows of the embedding and of the head
  std::vector<int64_t> head_slices;  // of this rank's columns of the attention output: where each ends
  std::vector<int64_t> ffn_slices;   // the same of the down product
  // The first stage, where another one has the embedding as its head: rows are read from the model's file.
  bool embedding_in_file = false;

  bool alone() const { return ranks == 1; }
  bool samples() const { return stage.last() && rank == 0; }
  int slices() const { return kSlices / ranks; }  // that this rank has of the four
};

// The share of `rank` among 1, 2 or 4 `ranks` of a stage. Slices end at whole heads and at whole blocks of the tensors'
// formats. Throws Error(declined) where a rank would be left without any.
ModelShare share_model(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint, int rank,
                       int ranks, const Stage& stage);

// Whether the first of several stages may leave the embedding where it is stored: the last one has it as its head, and
// the file has it as the model wants it.
bool embedding_stays_in_file(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint);

// All of a model.
Stage whole_stage(const ModelConfig& config);
ModelShare whole_model(const ModelConfig& config);

// Leaves of every weight what the share has of it. The first stage has the embedding, unless it reads it from the file;
// the last the final norm and the head, which is the embedding where they are tied.
void cut_layout(ModelLayout& layout, const ModelConfig& config, const ModelShare& share);

// The part of `count` things in a row that a rank has, where nothing says where to cut.
Range even_part(int64_t count, int rank, int ranks);

}  // namespace ingot
