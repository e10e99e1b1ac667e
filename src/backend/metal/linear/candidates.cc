#include "backend/metal/linear/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ingot::metal {
namespace {

constexpr int64_t kFewRows = 16, kMostUnrolledRows = 128;
constexpr int64_t kTileRows = 17;  // tiles of 32 rows are not for fewer

// Few rows, each simdgroup a slice. The more panels, the fewer threads find registers.
void add_streams(const LinearShape& shape, int family, std::vector<LinearVariant>& all) {
  const bool gated = shape.activation.has_value(), nvidia = family == kNvidiaFamily;
  const int64_t rows = rows_together(shape);
  if (!fits_streams(shape)) {
    for (const int matrix : {1, 2, 4}) all.push_back({.matrix = matrix});
    return;
  }
  if (!nvidia) {
    for (const int matrix : {1, 2, 4}) all.push_back({.matrix = matrix});
    for (const int matrix : {1, 2, 3, 4})
      for (const int unroll : {1, 2}) all.push_back({.matrix = matrix, .unroll = unroll});
    return;
  }
  if (rows > kFewRows) {
    for (const int matrix : {1, 2})
      for (const int unroll : {1, 2, 4})
        if (matrix * unroll <= (is_block_quantized(shape.format) ? 8 : 2))
          all.push_back({.matrix = matrix, .unroll = unroll});
    return;
  }
  for (const int unroll : {2, 4}) {
    for (int matrix = 1; matrix <= (gated ? 3 : 6); ++matrix) all.push_back({.matrix = matrix, .unroll = unroll});
    for (int matrix = 1; matrix <= (gated ? 2 : 4); ++matrix)
      all.push_back({.matrix = matrix, .unroll = unroll, .crowd = 512});
    for (int matrix = 1; matrix <= (gated ? 1 : 2); ++matrix)
      all.push_back({.matrix = matrix, .unroll = unroll, .crowd = 768});
  }
}

// Few rows of blocks that take x from threadgroup memory, 256 columns at a time: as many simdgroups as find registers,
// or half of them, so that a multiprocessor has two threadgroups.
void add_shared_blocks(const LinearShape& shape, std::vector<LinearVariant>& all) {
  const int unroll = static_cast<int>(kSuperColumns / (4 * packed_unit_columns(shape.format)));
  for (const auto& [panels, shared, crowd] : {std::array{4, 16, 512}, {4, 8, 512}, {2, 16, 512}, {2, 24, 768}})
    all.push_back(
        {.matrix = shape.activation ? panels / 2 : panels, .unroll = unroll, .shared = shared, .crowd = crowd});
  for (const auto& [panels, shared, crowd] : {std::array{2, 20, 640}, {2, 10, 640}, {4, 10, 512}, {3, 14, 512}})
    all.push_back({.matrix = panels, .unroll = unroll, .shared = shared, .split = true, .crowd = crowd});
}

// 9 to 16 rows of numbers, of which two panels are as many bytes as x: threadgroups that take more, by several
// simdgroups a slice, or x from threadgroup memory.
void add_many_of_few(const LinearShape& shape, std::vector<LinearVariant>& all) {
  const int both = shape.activation ? 2 : 1;  // matrices
  for (const auto& [panels, unroll, sets, crowd] : {std::array{2, 2, 3, 768}, {2, 2, 2, 512}, {4, 2, 2, 512}})
    all.push_back({.matrix = panels / both, .unroll = unroll, .sets = sets, .crowd = crowd});
  for (const int shared : {8, 16})
    all.push_back({.matrix = 4 / both, .unroll = 2, .shared = shared, .crowd = 512});
  all.push_back({.matrix = 5, .unroll = 4, .shared = 8, .split = true});
  all.push_back({.matrix = 3, .unroll = 2, .shared = 16, .split = true, .crowd = 512});
}

// 17 rows and more that take x from threadgroup memory.
void add_shared(const LinearShape& shape, std::vector<LinearVariant>& all) {
  const int most = shape.activation ? 2 : 5;
  for (const bool split : {false, true})
    for (int matrix = 1; matrix <= most; ++matrix)
      for (const auto& [unroll, crowd] : {std::pair{2, 256}, {4, 256}, {2, 512}}) {
        if (crowd > 256 && matrix > 4) continue;
        all.push_back({.matrix = matrix, .unroll = unroll, .shared = 8, .split = split, .crowd = crowd});
      }
}

void add_tiles(const LinearShape& shape, int family, std::vector<LinearVariant>& all) {
  const bool nvidia = family == kNvidiaFamily;
  for (const int rows : {32, 64, 128}) {
    if (rows >= 2 * rows_together(shape)) continue;  // most of it would be empty
    for (const int outputs : {64, 128})
      for (const int parts : {2, 4}) {
        LinearVariant tiles{.tile_rows = rows, .tile_outputs = outputs, .tile_parts = parts};
        if (!nvidia) all.push_back(tiles);
        tiles.tile_turn = 32;
        tiles.buffers = 2;
        if (nvidia && fits_copies(shape)) {
          tiles.buffers = 3;
          tiles.copies = true;
        }
        all.push_back(tiles);
        tiles.tile_width = 64;
        tiles.totals = true;
        if (nvidia && tiles.copies && outputs == 128 && parts == 2) all.push_back(tiles);
      }
  }
}

std::string name_of_variant(const LinearVariant& v) {
  if (v.tile_rows > 0) {
    std::string name = fmt::format("tiles {} x {} p{}", v.tile_rows, v.tile_outputs, v.tile_parts);
    if (v.tile_width != 32) name += fmt::format(" w{}", v.tile_width);
    if (v.tile_turn != 64) name += fmt::format(" t{}", v.tile_turn);
    if (v.buffers > 1) name += fmt::format(" b{}", v.buffers);
    return name + (v.copies ? " copies" : "") + (v.totals ? " totals" : "");
  }
  return fmt::format("few m{} u{}{}{}{}", v.matrix, v.unroll, v.crowd != 256 ? fmt::format(" c{}", v.crowd) : "",
                     v.shared > 0 ? fmt::format(" shared {}", v.shared)
                     : v.sets > 0 ? fmt::format(" sets {}", v.sets)
                                  : "",
                     v.split ? " split" : "");
}

}  // namespace

ProductKey ProductKey::of(const LinearShape& shape) {
  ProductKey key{.format = shape.format,
                 .format_up = shape.activation ? shape.format_up : shape.format,
                 .in = shape.in,
                 .activation = activation_number(shape),
                 .gated = shape.activation.has_value(),
                 .cols = shape.cols,
                 .outputs = shape.outputs,
                 .experts = shape.experts,
                 .cuts = shape.cuts,
                 .rows = 1};
  if (shape.experts > 0)
    key.rows = shape.item_rows;
  else if (shape.rows > 1)
    for (key.rows = 8; key.rows < shape.rows;) key.rows *= 2;
  return key;
}

std::string name_of(const ProductKey& key) {
  std::string name{dtype_name(key.format)};
  if (key.format_up != key.format) name += fmt::format(" and {}", dtype_name(key.format_up));
  if (key.experts > 0) name += fmt::format(" {} experts", key.experts);
  if (key.gated) name += " 2 x";
  name += fmt::format(" {} x {}", key.outputs, key.cols);
  if (key.activation > 0) name += fmt::format(" a{}", key.activation);
  if (key.cuts > 0) name += fmt::format(" {} cuts", key.cuts);
  return name + fmt::format(" of {}", dtype_name(key.in));
}

std::string name_of(const LinearWay& way) { return way.library ? "library" : name_of_variant(way.variant); }

LinearWay default_way(const LinearShape& shape, int family, bool library) {
  if (library && shape.rows > most_few_rows(shape, family)) return {.library = true, .variant = {}};
  return {.library = false, .variant = linear_variant(shape, family)};
}

std::vector<LinearWay> candidate_ways(const LinearShape& shape, int family, bool library) {
  std::vector<LinearVariant> variants;
  const int64_t rows = rows_together(shape);
  if (rows <= (fits_streams(shape) ? kMostUnrolledRows : kFewRows)) add_streams(shape, family, variants);
  if (rows > 8 && rows <= kFewRows && shape.experts == 0 && !is_block_quantized(shape.format) && family == kNvidiaFamily)
    add_many_of_few(shape, variants);
  if (rows > kFewRows && rows <= kMostUnrolledRows && family == kNvidiaFamily) add_shared(shape, variants);
  if (rows <= kFewRows && is_block_quantized(shape.format) && family == kNvidiaFamily)
    add_shared_blocks(shape, variants);
  if (rows >= kTileRows) add_tiles(shape, family, variants);
  std::vector<LinearWay> ways = {default_way(shape, family, library)};
  const auto add = [&ways](const LinearWay& way) {
    if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
  };
  add({.library = false, .variant = linear_variant(shape, family)});
  if (library && rows >= kTileRows) add({.library = true, .variant = {}});
  for (const LinearVariant& variant : variants)
    if (fits(shape, variant, family)) add({.library = false, .variant = variant});
  return ways;
}

}  // namespace ingot::metal
