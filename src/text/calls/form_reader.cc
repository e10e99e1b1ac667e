#include "text/calls/form_reader.h"

#include <algorithm>
#include <utility>

namespace ingot {
namespace {

// Of a name or an id: no white space, nothing that marks are made of.
bool is_word_byte(char c) {
  return static_cast<unsigned char>(c) > ' ' && std::string_view("<>[]{}()\"'=,;`").find(c) == std::string_view::npos;
}

bool is_mark(const Piece& piece) { return piece.kind == Piece::Kind::text || piece.kind == Piece::Kind::maybe; }

}  // namespace

std::vector<std::string> form_openings(const Form& form) {
  std::vector<std::string> openings;
  for (const Piece& piece : form.pieces) {
    if (piece.kind == Piece::Kind::space) continue;
    if (piece.kind == Piece::Kind::call)
      openings.emplace_back("{");
    else if (piece.kind == Piece::Kind::calls || piece.kind == Piece::Kind::python)
      openings.emplace_back("[");
    else
      openings.emplace_back(piece.text);
    if (piece.kind != Piece::Kind::maybe) break;
  }
  return openings;
}

FormReader::FormReader(const Dialect& dialect, const Form& form, const ToolSchemas& tools, const EventWriter& events)
    : dialect_(dialect),
      pieces_(form.pieces),
      call_{.tools = tools, .bare = false, .name = {}, .id = {}},
      calls_before_(events.calls()) {
  while (pieces_[first_].kind == Kind::space) ++first_;
  call_.bare = form.bare || form_openings(form).back().size() == 1;
}

bool FormReader::in_tail(const EventWriter& events) const {
  return events.calls() > calls_before_ && !events.in_call() && (reader_ == nullptr || reader_->in_tail());
}

Read FormReader::read(Input& in, EventWriter& events) {
  while (piece_ < pieces_.size()) {
    const Piece& piece = pieces_[piece_];
    const Read result = recovery_ ? recover(in, events) : read_piece(piece, in, events);
    if (result == Read::more) return result;
    if (result == Read::failed) {
      if (!events.in_call()) return events.calls() > calls_before_ ? Read::done : Read::failed;
      if (break_off(in, events) == Read::done) return Read::done;
      continue;
    }
    if (piece.kind == Kind::fields) no_fields_ = events.calls() == calls_before_;
    if (piece.kind == Kind::text && no_fields_) end_empty_call(in, events);
    reader_.reset();
    word_.clear();
    ++piece_;
  }
  if (no_fields_) end_empty_call(in, events);
  return Read::done;
}

Read FormReader::read_piece(const Piece& piece, Input& in, EventWriter& events) {
  switch (piece.kind) {
    case Kind::text:
    case Kind::maybe: {
      const Read result = read_mark(in, piece.text);
      if (result == Read::done && events.calls() > calls_before_) in.kept = in.at;
      return piece.kind == Kind::maybe && result == Read::failed ? Read::done : result;
    }
    case Kind::space: skip_space(in); return in.empty() && !in.ended ? Read::more : Read::done;
    case Kind::name: {
      const Read result = read_word(in, call_.name);
      return result == Read::done && !call_.is_function() ? Read::failed : result;
    }
    case Kind::id: return read_id(piece, in);
    case Kind::named_id: return read_named_id(in);
    case Kind::arguments:
      if (!reader_) reader_ = read_json_arguments();
      break;
    case Kind::fields:
      if (!reader_) reader_ = read_fields(dialect_.fields);
      break;
    case Kind::call:
    case Kind::calls:
      if (!reader_) reader_ = read_json_call(piece.kind == Kind::calls);
      break;
    case Kind::python:
      if (!reader_) reader_ = read_python_calls();
      break;
  }
  return reader_->read(in, events, call_);
}

Read FormReader::read_word(Input& in, std::string& word) {
  for (; !in.empty(); ++in.at) {
    if (!is_word_byte(in.next())) return word.empty() ? Read::failed : Read::done;
    if (word.size() == kMaxName) return Read::failed;
    word.push_back(in.next());
  }
  return Read::more;
}

Read FormReader::read_id(const Piece& piece, Input& in) {
  if (!id_marked_) {
    const Read result = read_mark(in, piece.text);
    if (result == Read::failed) return Read::done;
    if (result == Read::more) return result;
    id_marked_ = true;
  }
  return read_word(in, call_.id);
}

Read FormReader::read_named_id(Input& in) {
  const Read result = read_word(in, word_);
  if (result != Read::done) return result;
  constexpr std::string_view kSpace = "functions.";
  const size_t colon = word_.rfind(':');
  if (colon == word_.npos || colon + 1 == word_.size()) return Read::failed;
  if (word_.find_first_not_of("0123456789", colon + 1) != word_.npos) return Read::failed;
  call_.id = word_;
  call_.name = word_.substr(0, colon);
  if (call_.name.starts_with(kSpace)) call_.name.erase(0, kSpace.size());
  return call_.is_function() ? Read::done : Read::failed;
}

void FormReader::end_empty_call(Input& in, EventWriter& events) {
  events.begin_call(call_.name, call_.id);
  events.arguments("{}");
  events.end_call(false);
  no_fields_ = false;
  in.kept = in.at;
}

// In a call whose arguments are not well-formed. They are handed on as they are, up to what closes the call; where
// nothing closes calls, the call ends here.
Read FormReader::break_off(Input& in, EventWriter& events) {
  std::vector<std::string> marks;
  for (size_t i = piece_ + 1; i < pieces_.size(); ++i)
    if (is_mark(pieces_[i]) && (pieces_[i].kind == Kind::text || !call_.bare)) marks.emplace_back(pieces_[i].text);
  if (!marks.empty()) {
    recovery_.emplace(std::move(marks));
    return Read::more;
  }
  events.end_call(false);
  in.kept = in.at;
  return Read::done;
}

Read FormReader::recover(Input& in, EventWriter& events) {
  const MarkFinder::Found found = recovery_->find(in);
  events.arguments(in.text.substr(in.at, found.at - in.at));
  in.at = found.at;
  if (found.mark == MarkFinder::kNone) return Read::more;
  events.end_call(false);
  in.kept = in.at;
  const std::string& mark = recovery_->mark(found.mark);
  do ++piece_;
  while (!is_mark(pieces_[piece_]) || pieces_[piece_].text != mark);
  --piece_;  // the caller goes on to the one behind
  recovery_.reset();
  return Read::done;
}

}  // namespace ingot
