#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "grammar/lexer.h"
#include "grammar/rules.h"

namespace ingot::grammar {

using RowId = uint32_t;

// An Earley parser over lexemes. A row is what the parser knows at a place of the text: which rules are under way, in
// which state, and in which row they began. A row is kept once for all places that know the same, and rows refer to
// rows before them, never to places: so the rows of a repetition come back, and to go back is to forget.
class Earley {
 public:
  Earley(Rules& rules, Lexer& lexer, Budget& budget, RuleId root);

  RowId first() const { return first_; }
  // The row after lexemes that began in the given rows and all end here; `ending` as Lexer has it.
  struct Scan {
    RowId row;
    uint32_t ending;
  };
  RowId advance(std::span<const Scan> scans);

  LexState lexer_start(RowId row) const { return rows_[row].start; }
  bool is_complete(RowId row) const { return rows_[row].complete; }  // the text may end here
  size_t row_count() const { return rows_.size(); }

 private:
  static constexpr RowId kHere = ~RowId{0};  // began in the row itself
  struct Item {
    StateId state;
    RowId origin;
    auto operator<=>(const Item&) const = default;
  };
  struct Shift {  // over a lexeme
    LexemeId lexeme;
    Item to;
  };
  struct Wait {  // for a rule that begins here
    RuleId rule;
    Item to;
  };
  struct Row {
    std::vector<Item> kernel;  // sorted; with `ended` what tells rows apart, the rest follows
    bool ended;
    bool complete;
    LexState start;
    std::vector<Shift> shifts;                     // sorted by lexeme
    std::vector<Wait> waits;                       // sorted by rule
    std::vector<std::pair<uint32_t, RowId>> next;  // by `ending`, of those met
  };

  RowId make_row(std::span<const Scan> scans);
  RowId intern(std::vector<Item> kernel, bool ended);
  void close(Row& row);

  Rules& rules_;
  Lexer& lexer_;
  Budget& budget_;
  RuleId top_;
  RowId first_ = 0;
  std::vector<Row> rows_;
  HashIndex index_;
};

}  // namespace ingot::grammar
