#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/budget.h"
#include "grammar/byte_set.h"
#include "grammar/hash_index.h"

namespace ingot::grammar {

using ExprId = uint32_t;

// Regular expressions over bytes, closed under intersection and complement, and their derivatives. Every expression is
// kept once (equal ones have equal numbers), so a derivative is the state of an automaton that is made as it is walked.
class ExprPool {
 public:
  static constexpr ExprId kNothing = 0;  // matches no text
  static constexpr ExprId kEmpty = 1;    // matches the empty text alone
  static constexpr ExprId kAll = 2;      // matches every text
  static constexpr uint32_t kUnbounded = ~uint32_t{0};

  explicit ExprPool(Budget& budget);

  ExprId bytes(const ByteSet& set);
  ExprId literal(std::string_view text);
  ExprId literals(std::vector<std::string> texts);  // any of them
  ExprId concat(ExprId first, ExprId second);
  ExprId concat(std::initializer_list<ExprId> parts);
  ExprId either(std::vector<ExprId> parts);  // union
  ExprId both(std::vector<ExprId> parts);    // intersection
  ExprId complement(ExprId expr);
  ExprId without(ExprId expr, ExprId other) { return both({expr, complement(other)}); }
  ExprId repeat(ExprId expr, uint32_t least, uint32_t most = kUnbounded);
  ExprId optional(ExprId expr) { return either({expr, kEmpty}); }
  // Digits, a point perhaps and more digits, whose value is a multiple of `divisor` / 10^`places`.
  ExprId multiple(uint32_t divisor, uint32_t places);

  bool nullable(ExprId expr) const { return nodes_[expr].nullable; }  // matches the empty text

  // What must follow after one more byte, and for which bytes that is the same.
  struct Step {
    ByteSet bytes;
    ExprId next;
  };
  Step derive(ExprId expr, uint8_t byte);
  bool is_nothing(ExprId expr);  // no text matches; decided by looking for one
  bool matches(ExprId expr, std::string_view text);

 private:
  enum class Op : uint8_t { nothing, empty, bytes, concat, either, both, complement, repeat, multiple };
  struct Node {
    Op op;
    bool nullable;
    bool plain;      // without intersection and complement: matches something unless it is kNothing
    uint16_t depth;  // of the recursion that a derivative takes
    uint32_t a = 0, b = 0, c = 0;
  };
  enum class Known : uint8_t { open, something, nothing };

  ExprId intern(Node node, std::span<const ExprId> children = {});
  ExprId intern_list(Op op, std::vector<ExprId> parts, bool nullable, bool plain);
  std::span<const ExprId> children(const Node& node) const { return {children_.data() + node.a, node.b}; }
  ExprId literal_tree(std::span<const std::string> texts, size_t depth);
  bool flatten(Op op, std::vector<ExprId>& parts) const;
  Step derive_fresh(ExprId expr, uint8_t byte);
  Step derive_multiple(const Node& node, uint8_t byte);
  ExprId multiple_state(uint32_t divisor, uint32_t residue, uint32_t place);

  Budget& budget_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Step>> steps_;  // by expression: the derivatives met so far
  std::vector<Known> known_;              // by expression: the answer of is_nothing
  std::vector<uint32_t> seen_in_;         // by expression: the last search of is_nothing that met it
  uint32_t search_ = 0;
  std::vector<ExprId> children_;
  std::vector<ByteSet> sets_;
  HashIndex index_;
};

}  // namespace ingot::grammar
