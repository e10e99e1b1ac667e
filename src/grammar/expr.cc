#include "grammar/expr.h"

#include <algorithm>

namespace ingot::grammar {
namespace {

constexpr uint32_t kMaxDepth = 600;  // for stacks of half a megabyte, which some threads have
constexpr size_t kNodeBytes = 120;   // with its place in the index
// In `c` of a multiple: decimal places that may still differ from 0, and whether the point has been read.
constexpr uint32_t kInFraction = uint32_t{1} << 31;

uint32_t power_of_ten_mod(uint32_t exponent, uint32_t divisor) {
  uint64_t value = 1 % divisor;
  for (uint32_t i = 0; i < exponent; ++i) value = value * 10 % divisor;
  return static_cast<uint32_t>(value);
}

}  // namespace

ExprPool::ExprPool(Budget& budget) : budget_(budget) {
  intern({Op::nothing, false, true, 0});
  intern({Op::empty, true, true, 0});
  intern({Op::complement, true, true, 1, kNothing});
}

ExprId ExprPool::intern(Node node, std::span<const ExprId> list) {
  uint64_t hash = mix(static_cast<uint64_t>(node.op), node.op == Op::either || node.op == Op::both ? 0 : node.a);
  hash = mix(hash, uint64_t{node.b} << 32 | node.c);
  for (const ExprId child : list) hash = mix(hash, child);
  const bool has_list = node.op == Op::either || node.op == Op::both;
  const uint32_t found = index_.find(hash, [&](uint32_t id) {
    const Node& other = nodes_[id];
    if (other.op != node.op || other.b != node.b || other.c != node.c) return false;
    return has_list ? std::ranges::equal(children(other), list) : other.a == node.a;
  });
  if (found != HashIndex::kNone) return found;
  budget_.spend(kNodeBytes + list.size() * sizeof(ExprId));
  if (node.depth > kMaxDepth)
    throw_error(ErrorKind::bad_call, "an expression is nested deeper than {} levels", kMaxDepth);
  if (has_list) {
    node.a = static_cast<uint32_t>(children_.size());
    children_.insert(children_.end(), list.begin(), list.end());
  }
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(node);
  steps_.emplace_back();
  known_.push_back(Known::open);
  index_.insert(hash, id);
  return id;
}

ExprId ExprPool::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  // The set is told apart by its place in a table; equal sets are few, so a look at the last ones would not do.
  uint64_t hash = 0x5e7;
  for (const uint64_t word : set.words) hash = mix(hash, word);
  const uint32_t found =
      index_.find(hash, [&](uint32_t id) { return nodes_[id].op == Op::bytes && sets_[nodes_[id].a] == set; });
  if (found != HashIndex::kNone) return found;
  budget_.spend(kNodeBytes + sizeof(ByteSet));
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({Op::bytes, false, true, 1, static_cast<uint32_t>(sets_.size())});
  sets_.push_back(set);
  steps_.emplace_back();
  known_.push_back(Known::open);
  index_.insert(hash, id);
  return id;
}

ExprId ExprPool::literal(std::string_view text) {
  ExprId expr = kEmpty;
  for (size_t i = text.size(); i-- > 0;) expr = concat(bytes(ByteSet::of(static_cast<uint8_t>(text[i]))), expr);
  return expr;
}

ExprId ExprPool::literals(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? kNothing : literal_tree(texts, 0);
}

// Beginnings that texts share are there once, so that a derivative does not look at each text. `texts` are sorted and
// share their first `depth` bytes.
ExprId ExprPool::literal_tree(std::span<const std::string> texts, size_t depth) {
  size_t common = depth;
  const std::string &front = texts.front(), &back = texts.back();
  while (common < front.size() && common < back.size() && front[common] == back[common]) ++common;
  const ExprId start = literal(std::string_view(front).substr(depth, common - depth));
  if (texts.size() == 1) return start;
  std::vector<ExprId> parts;
  for (size_t first = 0; first < texts.size();) {
    if (texts[first].size() == common) {
      parts.push_back(kEmpty);
      ++first;
      continue;
    }
    size_t last = first;
    while (last < texts.size() && texts[last][common] == texts[first][common]) ++last;
    parts.push_back(literal_tree(texts.subspan(first, last - first), common));
    first = last;
  }
  return concat(start, either(std::move(parts)));
}

ExprId ExprPool::concat(ExprId first, ExprId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (nodes_[first].op == Op::concat) {  // chains lean to the right, so that equal texts have equal numbers
    std::vector<ExprId> heads;
    for (; nodes_[first].op == Op::concat; first = nodes_[first].b) heads.push_back(nodes_[first].a);
    second = concat(first, second);
    for (size_t i = heads.size(); i-- > 0;) second = concat(heads[i], second);
    return second;
  }
  const Node& a = nodes_[first];
  const Node& b = nodes_[second];
  const auto depth = static_cast<uint16_t>(1 + (a.nullable ? std::max(a.depth, b.depth) : a.depth));
  return intern({Op::concat, a.nullable && b.nullable, a.plain && b.plain, depth, first, second});
}

ExprId ExprPool::concat(std::initializer_list<ExprId> parts) {
  ExprId expr = kEmpty;
  for (auto part = parts.end(); part != parts.begin();) expr = concat(*--part, expr);
  return expr;
}

// Parts that are such lists themselves are put in their place; sorted, each once. False: a part and its complement.
bool ExprPool::flatten(Op op, std::vector<ExprId>& parts) const {
  std::vector<ExprId> flat;
  for (const ExprId part : parts) {
    if (nodes_[part].op == op) {
      const auto list = children(nodes_[part]);
      flat.insert(flat.end(), list.begin(), list.end());
    } else {
      flat.push_back(part);
    }
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  parts = std::move(flat);
  return std::ranges::none_of(parts, [&](ExprId part) {
    return nodes_[part].op == Op::complement && std::ranges::binary_search(parts, nodes_[part].a);
  });
}

ExprId ExprPool::intern_list(Op op, std::vector<ExprId> parts, bool nullable, bool plain) {
  if (parts.size() == 1) return parts[0];
  uint16_t depth = 0;
  for (const ExprId part : parts) depth = std::max(depth, nodes_[part].depth);
  return intern({op, nullable, plain, static_cast<uint16_t>(depth + 1), 0, static_cast<uint32_t>(parts.size())}, parts);
}

ExprId ExprPool::either(std::vector<ExprId> parts) {
  if (!flatten(Op::either, parts)) return kAll;
  ByteSet set;
  bool nullable = false, plain = true;
  std::vector<ExprId> kept;
  for (const ExprId part : parts) {
    const Node& node = nodes_[part];
    if (part == kNothing) continue;
    if (part == kAll) return kAll;
    if (node.op == Op::bytes) {
      set = set | sets_[node.a];
      continue;
    }
    plain = plain && node.plain;
    if (part != kEmpty) nullable = nullable || node.nullable;
    kept.push_back(part);
  }
  if (nullable) std::erase(kept, kEmpty);
  nullable = nullable || (!kept.empty() && kept[0] == kEmpty);
  if (!set.empty()) {
    kept.push_back(bytes(set));
    std::ranges::sort(kept);
  }
  if (kept.empty()) return kNothing;
  return intern_list(Op::either, std::move(kept), nullable, plain);
}

ExprId ExprPool::both(std::vector<ExprId> parts) {
  if (!flatten(Op::both, parts)) return kNothing;
  ByteSet set = ByteSet::all();
  bool has_set = false, nullable = true;
  std::vector<ExprId> kept;
  for (const ExprId part : parts) {
    const Node& node = nodes_[part];
    if (part == kNothing) return kNothing;
    if (part == kAll) continue;
    nullable = nullable && node.nullable;
    if (node.op == Op::bytes) {
      set = set & sets_[node.a];
      has_set = true;
      continue;
    }
    kept.push_back(part);
  }
  if (has_set) {
    const ExprId byte = bytes(set);
    if (byte == kNothing) return kNothing;
    kept.push_back(byte);
    std::ranges::sort(kept);
  }
  if (kept.empty()) return kAll;
  if (kept[0] == kEmpty) return nullable ? kEmpty : kNothing;
  return intern_list(Op::both, std::move(kept), nullable, false);
}

ExprId ExprPool::complement(ExprId expr) {
  const Node& node = nodes_[expr];
  if (node.op == Op::complement) return node.a;
  return intern({Op::complement, !node.nullable, false, static_cast<uint16_t>(node.depth + 1), expr});
}

ExprId ExprPool::repeat(ExprId expr, uint32_t least, uint32_t most) {
  if (most == 0 || expr == kEmpty) return kEmpty;
  if (expr == kNothing) return least == 0 ? kEmpty : kNothing;
  const Node& node = nodes_[expr];
  if (node.nullable) least = 0;
  if (least == 1 && most == 1) return expr;
  if (node.op == Op::repeat && node.b == 0 && node.c == kUnbounded) return expr;
  return intern({Op::repeat, least == 0, node.plain, static_cast<uint16_t>(node.depth + 1), expr, least, most});
}

ExprId ExprPool::multiple(uint32_t divisor, uint32_t places) {
  return divisor <= 1 && places == 0 ? multiple_state(1, 0, 0) : multiple_state(divisor, 0, places);
}

ExprId ExprPool::multiple_state(uint32_t divisor, uint32_t residue, uint32_t place) {
  const uint64_t left = power_of_ten_mod(place & ~kInFraction, divisor);
  return intern({Op::multiple, left * residue % divisor == 0, true, 1, divisor, residue, place});
}

ExprPool::Step ExprPool::derive_multiple(const Node& node, uint8_t byte) {
  const uint32_t left = node.c & ~kInFraction;
  if (byte == '.' && (node.c & kInFraction) == 0)
    return {ByteSet::of('.'), multiple_state(node.a, node.b, node.c | kInFraction)};
  if (byte < '0' || byte > '9') {
    ByteSet others = ~ByteSet::range('0', '9');
    if ((node.c & kInFraction) == 0) others = others & ~ByteSet::of('.');
    return {others, kNothing};
  }
  const uint32_t digit = byte - '0';
  if ((node.c & kInFraction) != 0 && left == 0)  // further places must be 0
    return {ByteSet::of(byte), digit == 0 ? intern(node) : kNothing};
  const uint32_t place = (node.c & kInFraction) != 0 ? (left - 1) | kInFraction : node.c;
  const auto residue = static_cast<uint32_t>((uint64_t{node.b} * 10 + digit) % node.a);
  return {ByteSet::of(byte), multiple_state(node.a, residue, place)};
}

ExprPool::Step ExprPool::derive(ExprId expr, uint8_t byte) {
  for (const Step& step : steps_[expr])
    if (step.bytes.has(byte)) return step;
  budget_.tick();
  const Step step = derive_fresh(expr, byte);
  // Bytes that lead to the same place are one class, also when they were met apart.
  for (Step& known : steps_[expr])
    if (known.next == step.next) {
      known.bytes = known.bytes | step.bytes;
      return known;
    }
  budget_.spend(sizeof(Step));
  steps_[expr].push_back(step);
  return step;
}

ExprPool::Step ExprPool::derive_fresh(ExprId expr, uint8_t byte) {
  const Node node = nodes_[expr];
  switch (node.op) {
    case Op::nothing:
    case Op::empty: return {ByteSet::all(), kNothing};
    case Op::bytes: {
      const ByteSet& set = sets_[node.a];
      return set.has(byte) ? Step{set, kEmpty} : Step{~set, kNothing};
    }
    case Op::concat: {
      Step step = derive(node.a, byte);
      step.next = concat(step.next, node.b);
      if (!nodes_[node.a].nullable) return step;
      const Step rest = derive(node.b, byte);
      return {step.bytes & rest.bytes, either({step.next, rest.next})};
    }
    case Op::either:
    case Op::both: {
      ByteSet same = ByteSet::all();
      std::vector<ExprId> parts;
      for (uint32_t i = 0; i < node.b; ++i) {
        const Step step = derive(children_[node.a + i], byte);
        same = same & step.bytes;
        if (node.op == Op::both || step.next != kNothing) parts.push_back(step.next);
      }
      return {same, node.op == Op::both ? both(std::move(parts)) : either(std::move(parts))};
    }
    case Op::complement: {
      const Step step = derive(node.a, byte);
      return {step.bytes, complement(step.next)};
    }
    case Op::repeat: {
      const Step step = derive(node.a, byte);
      const uint32_t least = node.b == 0 ? 0 : node.b - 1;
      const uint32_t most = node.c == kUnbounded ? kUnbounded : node.c - 1;
      return {step.bytes, step.next == kNothing ? kNothing : concat(step.next, repeat(node.a, least, most))};
    }
    case Op::multiple: return derive_multiple(node, byte);
  }
  return {ByteSet::all(), kNothing};
}

bool ExprPool::is_nothing(ExprId start) {
  if (nodes_[start].plain) return start == kNothing;
  struct Level {
    ExprId expr;
    ByteSet left;  // bytes not tried yet
  };
  std::vector<Level> path;
  std::vector<ExprId> seen;
  ++search_;
  const auto enter = [&](ExprId expr) {  // whether some text matches for certain
    if (expr == kNothing || known_[expr] == Known::nothing) return false;
    if (nodes_[expr].nullable || nodes_[expr].plain || known_[expr] == Known::something) return true;
    if (seen_in_.size() < nodes_.size()) seen_in_.resize(nodes_.size() * 2);
    if (seen_in_[expr] == search_) return false;
    seen_in_[expr] = search_;
    seen.push_back(expr);
    path.push_back({expr, ByteSet::all()});
    return false;
  };
  bool found = enter(start);
  while (!found && !path.empty()) {
    Level& level = path.back();
    if (level.left.empty()) {
      path.pop_back();
      continue;
    }
    const Step step = derive(level.expr, level.left.first());
    level.left = level.left & ~step.bytes;
    found = enter(step.next);
  }
  if (found) {
    for (const Level& level : path) known_[level.expr] = Known::something;
    known_[start] = Known::something;
  } else {
    for (const ExprId expr : seen) known_[expr] = Known::nothing;
  }
  return !found;
}

bool ExprPool::matches(ExprId expr, std::string_view text) {
  for (const char c : text) expr = derive(expr, static_cast<uint8_t>(c)).next;
  return nullable(expr);
}

}  // namespace ingot::grammar
