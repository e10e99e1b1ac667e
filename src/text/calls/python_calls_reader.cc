#include "text/calls/piece_reader.h"
#include "text/calls/python_literal.h"

namespace ingot {
namespace {

bool is_identifier(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
         c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

// [f(a=1, b='x'), g()]
class PythonCallsReader : public CallsReader {
  enum class State { list, call, name, name_end, argument, key, key_end, value, next, element, end };

  bool at_end() const override { return state_ == State::end; }
  Read step(Input& in, EventWriter& events, CallContext& call) override;
  Read take(Input& in, State next) {
    ++in.at;
    state_ = next;
    return Read::done;
  }
  Read read_identifier(Input& in, std::string& text, State next);
  void begin(EventWriter& events, CallContext& call);
  Read end_call(Input& in, EventWriter& events, CallContext& call);

  State state_ = State::list;
  std::string key_;
  PythonLiteral value_;
};

Read PythonCallsReader::read_identifier(Input& in, std::string& text, State next) {
  while (!in.empty() && is_identifier(in.next())) {
    text.push_back(in.text[in.at++]);
    if (text.size() > kMaxName) return Read::failed;
  }
  if (in.empty()) return Read::more;
  state_ = next;
  return Read::done;
}

Read PythonCallsReader::step(Input& in, EventWriter& events, CallContext& call) {
  if (state_ == State::value) {
    std::string json;
    Input inner{.text = in.text, .at = in.at};  // a word that the text ends in may have been cut off
    const Read result = value_.read(inner, json);
    in.at = inner.at;
    events.arguments(json);
    if (result == Read::done) state_ = State::next;
    return result;
  }
  if (state_ != State::name && state_ != State::key) skip_space(in);
  if (in.empty()) return Read::more;
  const char c = in.next();
  switch (state_) {
    case State::list: return c == '[' ? take(in, State::call) : Read::failed;
    case State::call:
      if (c == ']' && ended_) {  // behind a last comma
        take(in, State::end);
        in.kept = in.at;
        return Read::done;
      }
      call.name.clear();
      if (!is_identifier(c)) return Read::failed;
      ended_ = false;
      state_ = State::name;
      return Read::done;
    case State::name: return read_identifier(in, call.name, State::name_end);
    case State::name_end:
      if (c != '(' || !call.is_function()) return Read::failed;
      return take(in, State::argument);
    case State::argument:
      if (c == ')') return end_call(in, events, call);
      key_.clear();
      if (!is_identifier(c)) return Read::failed;
      state_ = State::key;
      return Read::done;
    case State::key: return read_identifier(in, key_, State::key_end);
    case State::key_end: {
      if (c != '=') return Read::failed;
      const bool first = !events.in_call();
      begin(events, call);
      events.arguments((first ? "\"" : ", \"") + key_ + "\": ");
      const ValueKinds* kinds = call.tools.find(call.name, key_);
      value_ = PythonLiteral(kinds != nullptr && kinds->string && !kinds->number && !kinds->boolean);
      return take(in, State::value);
    }
    case State::next:
      if (c == ',') return take(in, State::argument);
      return c == ')' ? end_call(in, events, call) : Read::failed;
    case State::element:
      if (c != ',' && c != ']') return Read::failed;
      take(in, c == ',' ? State::call : State::end);
      in.kept = in.at;
      return Read::done;
    default: return Read::failed;
  }
}

void PythonCallsReader::begin(EventWriter& events, CallContext& call) {
  if (events.in_call()) return;
  events.begin_call(call.name, call.id);
  events.arguments("{");
}

Read PythonCallsReader::end_call(Input& in, EventWriter& events, CallContext& call) {
  begin(events, call);
  events.arguments("}");
  events.end_call(false);
  ended_ = true;
  take(in, State::element);
  in.kept = in.at;
  return Read::done;
}

}  // namespace

std::unique_ptr<PieceReader> read_python_calls() { return std::make_unique<PythonCallsReader>(); }

}  // namespace ingot
