#pragma once

#include <memory>
#include <string>

#include "text/calls/events.h"
#include "text/calls/input.h"
#include "text/calls/json_scanner.h"
#include "text/calls/tool_schemas.h"

namespace ingot {

struct Fields;

constexpr size_t kMaxName = 256;  // bytes of a function's name, an id or a key

// What the readers of a form know of the call so far.
struct CallContext {
  const ToolSchemas& tools;
  bool bare = false;  // no mark opened the form: what calls an unknown function is taken for ordinary text
  std::string name;
  std::string id;

  bool is_function() const { return !name.empty() && (!bare || tools.empty() || tools.has(name)); }
};

// Reads the arguments of a call, or whole calls. A call begins in the events once its name is known and its arguments
// have begun as they must; before that `failed` means that the text is no call, after it that the call is not
// well-formed.
class PieceReader {
 public:
  virtual ~PieceReader() = default;
  virtual Read read(Input& in, EventWriter& events, CallContext& call) = 0;
  // Whether only what closes the form is missing: the calls in it have ended.
  virtual bool in_tail() const { return false; }
};

// Whole calls, taken state by state.
class CallsReader : public PieceReader {
 public:
  Read read(Input& in, EventWriter& events, CallContext& call) final {
    while (!at_end()) {
      const Read result = step(in, events, call);
      // Behind its arguments a call has ended, whatever else follows.
      if (result == Read::failed && in_tail()) return Read::done;
      if (result != Read::done) return result;
    }
    return Read::done;
  }
  bool in_tail() const final { return ended_; }

 protected:
  virtual bool at_end() const = 0;
  virtual Read step(Input& in, EventWriter& events, CallContext& call) = 0;  // done: on to the next state

  bool ended_ = false;  // the call at hand, or the one before where the next has not begun
};

std::unique_ptr<PieceReader> read_json_arguments();
std::unique_ptr<PieceReader> read_json_call(bool list);
std::unique_ptr<PieceReader> read_fields(const Fields& fields);
std::unique_ptr<PieceReader> read_python_calls();

// A JSON object that becomes the arguments of a call as it is read.
class ArgumentsStream {
 public:
  // The call begins when the object has and the call's name is known; both can be late.
  Read read(Input& in, EventWriter& events, CallContext& call);
  void begin_if_ready(EventWriter& events, CallContext& call);
  bool empty() const { return !started_; }
  bool done() const { return scanner_.done(); }

 private:
  JsonScanner scanner_;
  std::string pending_;
  bool started_ = false;
  bool begun_ = false;
};

}  // namespace ingot
