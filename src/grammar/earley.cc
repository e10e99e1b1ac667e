#include "grammar/earley.h"

#include <algorithm>

namespace ingot::grammar {
namespace {

// A growing list in which everything is once. Short lists are looked through, long ones are hashed.
template <typename T>
class Worklist {
 public:
  void add(const T& value, uint64_t hash) {
    const uint32_t found = index_.find(hash, [&](uint32_t at) { return values[at] == value; });
    if (found != HashIndex::kNone) return;
    index_.insert(hash, static_cast<uint32_t>(values.size()));
    values.push_back(value);
  }
  std::vector<T> values;

 private:
  HashIndex index_;
};

}  // namespace

Earley::Earley(Rules& rules, Lexer& lexer, Budget& budget, RuleId root)
    : rules_(rules), lexer_(lexer), budget_(budget) {
  // A rule of its own around the root, which may call itself.
  top_ = rules.add_rule();
  const StateId begin = rules.add_state(top_), end = rules.add_state(top_, true);
  rules.set_start(top_, begin);
  rules.add_call(begin, root, end);
  first_ = intern({{begin, kHere}}, false);
}

RowId Earley::advance(std::span<const Scan> scans) {
  if (scans.size() > 1) return make_row(scans);
  for (const auto& [ending, row] : rows_[scans[0].row].next)
    if (ending == scans[0].ending) return row;
  const RowId made = make_row(scans);
  rows_[scans[0].row].next.emplace_back(scans[0].ending, made);
  return made;
}

RowId Earley::make_row(std::span<const Scan> scans) {
  Worklist<Item> items;
  bool ended = false;                          // the text may end with these lexemes
  const auto add = [&](Item to, RowId from) {  // `from`: the row in which `to` was written down
    if (to.origin == kHere) to.origin = from;
    items.add(to, mix(to.state, to.origin));
  };
  for (const Scan& scan : scans) {
    const auto& shifts = rows_[scan.row].shifts;
    for (const LexemeId lexeme : lexer_.lexemes_of(scan.ending)) {
      const auto range = std::ranges::equal_range(shifts, lexeme, {}, &Shift::lexeme);
      for (const Shift& shift : range) add(shift.to, scan.row);
    }
  }
  std::vector<Item> kernel;
  for (size_t i = 0; i < items.values.size(); ++i) {
    const Item item = items.values[i];
    budget_.tick();
    const auto edges = rules_.edges(item.state);
    if (std::ranges::any_of(edges, [](const Rules::Edge& edge) { return edge.kind != Rules::Edge::Kind::none; }))
      kernel.push_back(item);
    for (const Rules::Edge& edge : edges)
      if (edge.kind == Rules::Edge::Kind::none) add({edge.to, item.origin}, item.origin);
    if (!rules_.is_final(item.state)) continue;
    const RuleId rule = rules_.rule_of(item.state);
    if (rule == top_) ended = true;
    const auto waits = std::ranges::equal_range(rows_[item.origin].waits, rule, {}, &Wait::rule);
    for (const Wait& wait : waits) add(wait.to, item.origin);
  }
  std::ranges::sort(kernel);
  return intern(std::move(kernel), ended);
}

RowId Earley::intern(std::vector<Item> kernel, bool ended) {
  uint64_t hash = ended ? 5 : 4;
  for (const Item& item : kernel) hash = mix(hash, uint64_t{item.state} << 32 | item.origin);
  const uint32_t found =
      index_.find(hash, [&](uint32_t id) { return rows_[id].kernel == kernel && rows_[id].ended == ended; });
  if (found != HashIndex::kNone) return found;
  Row row{std::move(kernel), ended, ended, Lexer::kDead, {}, {}, {}};
  close(row);
  budget_.spend(sizeof(Row) + row.kernel.size() * sizeof(Item) + row.shifts.size() * sizeof(Shift) +
                row.waits.size() * sizeof(Wait));
  rows_.push_back(std::move(row));
  const auto id = static_cast<RowId>(rows_.size() - 1);
  index_.insert(hash, id);
  return id;
}

// Begins every rule that may begin here, and ends those that may be empty.
void Earley::close(Row& row) {
  Worklist<Item> items;
  for (const Item& item : row.kernel) items.add(item, mix(item.state, item.origin));
  std::vector<RuleId> begun, empty;
  const auto add = [&](const Item& item) { items.add(item, mix(item.state, item.origin)); };
  for (size_t i = 0; i < items.values.size(); ++i) {
    const Item item = items.values[i];
    budget_.tick();
    // Asking for a rule's first state may add states: edges are looked up anew each time.
    for (size_t e = 0; e < rules_.edges(item.state).size(); ++e) {
      const Rules::Edge edge = rules_.edges(item.state)[e];
      const Item to{edge.to, item.origin};
      if (edge.kind == Rules::Edge::Kind::none) {
        add(to);
      } else if (edge.kind == Rules::Edge::Kind::lexeme) {
        row.shifts.push_back({edge.symbol, to});
      } else {
        row.waits.push_back({edge.symbol, to});
        add({rules_.start(edge.symbol), kHere});
        if (std::ranges::find(empty, edge.symbol) != empty.end()) add(to);
      }
    }
    if (!rules_.is_final(item.state)) continue;
    const RuleId rule = rules_.rule_of(item.state);
    if (rule == top_) row.complete = true;
    if (item.origin != kHere) {  // behind a rule that was empty
      for (const Wait& wait : std::ranges::equal_range(rows_[item.origin].waits, rule, {}, &Wait::rule))
        add({wait.to.state, wait.to.origin == kHere ? item.origin : wait.to.origin});
      continue;
    }
    if (std::ranges::find(empty, rule) != empty.end()) continue;
    empty.push_back(rule);
    for (const Wait& wait : row.waits)
      if (wait.rule == rule) add(wait.to);
  }
  std::ranges::stable_sort(row.shifts, {}, &Shift::lexeme);
  std::ranges::stable_sort(row.waits, {}, &Wait::rule);
  std::vector<LexemeId> lexemes;
  for (const Shift& shift : row.shifts)
    if (lexemes.empty() || lexemes.back() != shift.lexeme) lexemes.push_back(shift.lexeme);
  row.start = lexer_.start(lexemes);
}

}  // namespace ingot::grammar
