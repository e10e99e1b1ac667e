#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/calls/mark_finder.h"
#include "text/calls/piece_reader.h"
#include "text/dialects/dialect.h"

namespace ingot {

// The texts that calls of this form can begin with.
std::vector<std::string> form_openings(const Form& form);

// Reads one piece of a form after the other: a call, or a list of them. From a call's beginning on the text is one,
// whatever follows; what breaks the form then ends it.
class FormReader {
 public:
  FormReader(const Dialect& dialect, const Form& form, const ToolSchemas& tools, const EventWriter& events);

  // done: what is from in.kept to in.at did not belong to it. failed: no call.
  Read read(Input& in, EventWriter& events);
  // Of a text that ends here: whether a call was to come, as far as one can tell.
  bool committed() const { return piece_ > first_ && (!call_.bare || !call_.name.empty()); }
  // Whether there was a call, and only what closes the form is missing.
  bool in_tail(const EventWriter& events) const;

 private:
  using Kind = Piece::Kind;

  Read read_piece(const Piece& piece, Input& in, EventWriter& events);
  Read read_word(Input& in, std::string& word);
  Read read_id(const Piece& piece, Input& in);
  Read read_named_id(Input& in);
  Read break_off(Input& in, EventWriter& events);
  Read recover(Input& in, EventWriter& events);
  void end_empty_call(Input& in, EventWriter& events);

  const Dialect& dialect_;
  const std::vector<Piece>& pieces_;
  CallContext call_;
  int calls_before_;
  size_t piece_ = 0;
  size_t first_ = 0;                     // the first piece that is not white space
  std::unique_ptr<PieceReader> reader_;  // of the piece at hand
  std::string word_;                     // of the piece at hand
  bool id_marked_ = false;
  bool no_fields_ = false;              // the call has no arguments, and begins when its closing mark has come
  std::optional<MarkFinder> recovery_;  // finds what closes a call whose arguments are not well-formed
};

}  // namespace ingot
