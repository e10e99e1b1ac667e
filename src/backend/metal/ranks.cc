#include <vector>

#include "backend/metal/ops.h"
#include "backend/metal/sum_parts.h"
#include "collective/parts.h"
#include "step/view.h"

// What ranks do together: kernels fill mailboxes and empty them, and the group exchanges what is in them.
namespace ingot::metal {
namespace {

constexpr uint32_t kCopyThreads = 256;

void copy(Context& context, BufferView from, BufferView to) {
  Encoder& encoder = context.encoder;
  const auto words = static_cast<uint32_t>(from.bytes / 4);
  encoder.use("copy_words");
  encoder.read(0, from);
  encoder.write(1, to);
  encoder.value(2, words);
  encoder.dispatch({groups_of(words, kCopyThreads), 1, 1}, {kCopyThreads, 1, 1});
}

void exchange(Context& context, Peers& with, std::vector<Mailboxes::Letter> letters) {
  if (context.encoder.rehearsing()) return;
  for (const Mailboxes::Letter& letter : letters)
    if (letter.out.count > 0) {
      context.times->wire_bytes += letter.out.count * 4;
      ++context.times->wire_messages;
    }
  context.encoder.between([&](MTL::CommandBuffer* commands) { context.mailboxes->encode(commands, with, letters); });
}

size_t words_of(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

// Two ranks exchange all of it. Four each add a part for all, and then tell it to the others: three quarters of it
// twice.
void encode(const SumRanksOp& op, Context& context) {
  Mailboxes& boxes = *context.mailboxes;
  Peers& peers = boxes.layer();
  const int rank = peers.rank(), ranks = peers.size();
  const int64_t n = op.rows * op.dim;
  const auto part = [&](int of) {
    const Part words = part_of(n, of, ranks);
    return Mailboxes::Words{words_of(words.begin), words_of(words.size())};
  };
  const Mailboxes::Words all{0, words_of(n)}, mine = part(rank);
  if (context.encoder.rehearsing()) boxes.reserve(all.count, ranks == 2 ? all.count : 3 * mine.count);
  ++context.times->collectives;
  const BufferView own = context.words(op.in, n), out = context.words(op.out, n);
  SumParts last{.count = n, .bias = context.vector(op.bias), .dim = op.dim, .out = out, .accumulate = op.accumulate};
  copy(context, own, boxes.out(all));
  if (ranks == 2) {
    exchange(context, peers, {{.peer = 1 - rank, .out = all, .in = all}});
    last.left = 2;
    last.first = own;
    last.rest = boxes.in(all);
    return encode_sum(context, last);
  }
  // Neighbours' parts lie in pairs: (own + neighbour) + (two others), and additions of two may be turned round.
  std::vector<Mailboxes::Letter> parts, sums;
  for (int other = 1; other < ranks; ++other) {
    const Mailboxes::Words box{words_of(other - 1) * mine.count, mine.count};
    parts.push_back({.peer = rank ^ other, .out = part(rank ^ other), .in = box});
    sums.push_back({.peer = rank ^ other, .out = mine, .in = part(rank ^ other), .in_out_box = true});
  }
  exchange(context, peers, parts);
  encode_sum(context, {.count = static_cast<int64_t>(mine.count),
                       .left = 2,
                       .right = 2,
                       .first = {own.buffer, own.offset + mine.first * 4, mine.count * 4},
                       .rest = boxes.in({0, 3 * mine.count}),
                       .stride = static_cast<int64_t>(mine.count),
                       .out = boxes.out(mine)});
  exchange(context, peers, sums);
  last.first = boxes.out(all);
  encode_sum(context, last);
}

void encode(const GatherRanksOp& op, Context& context) {
  Mailboxes& boxes = *context.mailboxes;
  Peers& peers = boxes.layer();
  const int rank = peers.rank(), ranks = peers.size();
  const auto part = [&](int of) { return part_of(op.dim, of, ranks); };
  const auto box = [&](int of) {
    return Mailboxes::Words{words_of(op.rows * part(of).begin), words_of(op.rows * part(of).size())};
  };
  const BufferView own = context.words(op.in, op.rows * op.width);
  ++context.times->collectives;
  if (rank != 0) {
    const Mailboxes::Words mine{0, box(rank).count};
    if (context.encoder.rehearsing()) boxes.reserve(mine.count, 0);
    copy(context, own, boxes.out(mine));
    return exchange(context, peers, {{.peer = 0, .out = mine}});
  }
  if (context.encoder.rehearsing()) boxes.reserve(0, words_of(op.rows * op.dim));
  std::vector<Mailboxes::Letter> letters;
  for (int other = 1; other < ranks; ++other) letters.push_back({.peer = other, .in = box(other)});
  exchange(context, peers, letters);
  Encoder& encoder = context.encoder;
  for (int from = 0; from < ranks; ++from) {
    const auto width = part(from).size();
    encoder.use("place_columns");
    encoder.read(0, from == 0 ? own : boxes.in(box(from)));
    // Every rank has columns of its own.
    if (from == 0)
      encoder.write(1, context.words(op.out, op.rows * op.dim));
    else
      encoder.weight(1, context.words(op.out, op.rows * op.dim));
    encoder.value(2, PlaceColumnsParams{.width = static_cast<uint32_t>(width),
                                        .stride = static_cast<uint32_t>(op.dim),
                                        .first = static_cast<uint32_t>(part(from).begin)});
    encoder.dispatch({groups_of(width, kRowThreads), static_cast<NS::UInteger>(op.rows), 1}, {kRowThreads, 1, 1});
  }
}

void encode(const ShareTokensOp&, Context& context) {
  Mailboxes& boxes = *context.mailboxes;
  const Mailboxes::Words all{0, words_of(context.step.samples)};
  if (context.encoder.rehearsing()) boxes.reserve(all.count, all.count);
  BufferView tokens = context.sampler->previous_tokens(context.number + 1);  // those of this step
  tokens.bytes = all.count * 4;
  ++context.times->collectives;
  Peers& peers = boxes.layer();
  if (peers.rank() != 0) {
    exchange(context, peers, {{.peer = 0, .in = all}});
    return copy(context, boxes.in(all), tokens);
  }
  copy(context, tokens, boxes.out(all));
  std::vector<Mailboxes::Letter> letters;
  for (int other = 1; other < peers.size(); ++other) letters.push_back({.peer = other, .out = all});
  exchange(context, peers, letters);
}

void encode(const SendRowsOp& op, Context& context) {
  Mailboxes& boxes = *context.mailboxes;
  const Mailboxes::Words all{0, words_of(op.rows * op.dim)};
  if (context.encoder.rehearsing()) boxes.reserve(all.count, 0);
  copy(context, context.words(op.in, op.rows * op.dim), boxes.out(all));
  exchange(context, boxes.stages(), {{.peer = boxes.stages().rank() + 1, .out = all}});
}

void encode(const ReceiveRowsOp& op, Context& context) {
  Mailboxes& boxes = *context.mailboxes;
  const Mailboxes::Words all{0, words_of(op.rows * op.dim)};
  if (context.encoder.rehearsing()) boxes.reserve(0, all.count);
  exchange(context, boxes.stages(), {{.peer = boxes.stages().rank() - 1, .in = all}});
  copy(context, boxes.in(all), context.words(op.out, op.rows * op.dim));
}

// The host reads them once the GPU is there.
void encode(const ReadRowsOp& op, Context& context) {
  Mailboxes& boxes = *context.mailboxes;
  const Mailboxes::Words all{0, words_of(op.rows * op.dim)};
  if (context.encoder.rehearsing())
    boxes.reserve(0, all.count);
  else
    context.encoder.between([&](MTL::CommandBuffer* commands) {
      boxes.fill(commands, all, [op, view = StepView(context.step, context.staged_at)](float* rows) {
        for (int64_t row = 0; row < op.rows; ++row)
          op.table->read(view.token_ids()[row], view.positions()[row], op.scale, rows + row * op.dim);
        op.table->drop();
      });
    });
  copy(context, boxes.in(all), context.words(op.out, op.rows * op.dim));
}

// Behind all of the step: see Metal::submit_step().
void encode(const SendOutputOp&, Context& context) { context.answers = !context.encoder.rehearsing(); }

}  // namespace ingot::metal
