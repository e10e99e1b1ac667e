#include "text/calls/harmony_parser.h"

#include <algorithm>
#include <string>

#include "text/calls/json_scanner.h"
#include "text/calls/mark_finder.h"

namespace ingot {
namespace {

constexpr size_t kMaxHeader = 512;
constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>", kStart = "<|start|>",
                           kConstrain = "<|constrain|>";

// Where a header begins with something else, it is none.
constexpr std::string_view kHeaderBegins[] = {kStart, kChannel, kConstrain, kMessage, " to="};
// Tools that the models were trained with, and call although nobody offered them.
constexpr std::string_view kBuiltIn[] = {"browser", "python", "container"};

struct Header {
  std::string channel;
  std::string recipient;
};

std::string_view word_at(std::string_view text) { return text.substr(0, text.find_first_of(" <\n\t")); }

// " to=NAME<|channel|>commentary to=NAME <|constrain|>json": the recipient stands behind the role or behind the
// channel. Of several channels the last counts.
Header read_header(std::string_view text) {
  Header header;
  const size_t first = text.find(kChannel), last = text.rfind(kChannel);
  const std::string_view role = text.substr(0, first);
  const std::string_view channel = last == text.npos ? std::string_view() : text.substr(last + kChannel.size());
  header.channel = word_at(channel);
  for (const std::string_view part : {role, channel})
    if (const size_t at = part.find("to="); at != part.npos) header.recipient = word_at(part.substr(at + 3));
  return header;
}

class HarmonyParser : public ChatParser {
 public:
  explicit HarmonyParser(const ChatParserOptions& options) : options_(options) {}

 protected:
  void run(Input& in) override {
    while (in_header_ ? scan_header(in) : scan_body(in)) {
    }
  }
  void end() override;

 private:
  enum class Body { content, reasoning, arguments, nothing };

  bool scan_header(Input& in);
  bool scan_body(Input& in);
  void begin_body(const Header& header);
  void add(std::string_view text);
  void end_body();

  const ChatParserOptions options_;
  const MarkFinder header_end_{{std::string(kMessage), "<|end|>", "<|return|>", "<|call|>"}};
  const MarkFinder body_end_{{"<|end|>", "<|return|>", "<|call|>", std::string(kStart), std::string(kChannel)}};
  bool in_header_ = true;  // the prompt ends within one
  Body body_ = Body::content;
  JsonScanner arguments_;
  bool broken_ = false;  // the arguments are not JSON
  bool empty_ = true;    // there are none yet
};

bool HarmonyParser::scan_header(Input& in) {
  // in.kept is where the header begins, in.at how far it has been searched.
  const std::string_view header = in.text.substr(in.kept);
  if (header.empty()) return false;
  bool begins = false;
  for (const std::string_view begin : kHeaderBegins)
    begins = begins || header.starts_with(begin) || (!in.ended && begin.starts_with(header));
  const MarkFinder::Found found = begins ? header_end_.find(in) : MarkFinder::Found{in.kept, MarkFinder::kNone};
  in.at = found.at;
  if (found.at - in.kept <= kMaxHeader) {
    const std::string_view text = in.text.substr(in.kept, found.at - in.kept);
    if (begins && found.mark == 0) {
      begin_body(read_header(text));
      in.at = in.kept = found.at + kMessage.size();
      in_header_ = false;
      return true;
    }
    if (begins && found.mark == MarkFinder::kNone) {
      if (!in.ended) return false;
      cut_ = !read_header(text).recipient.empty();
      in.kept = in.at;
      return false;
    }
    if (found.mark != MarkFinder::kNone) in.at += header_end_.mark(found.mark).size();
  } else {
    in.at = in.kept + kMaxHeader;
    while ((in.text[in.at] & 0xC0) == 0x80) --in.at;  // whole characters
  }
  // No header: text of its own.
  body_ = Body::content;
  in_header_ = false;
  events_.content(in.text.substr(in.kept, in.at - in.kept));
  in.kept = in.at;
  return true;
}

bool HarmonyParser::scan_body(Input& in) {
  const bool ended = in.ended && body_ != Body::arguments;  // behind those, a mark that is cut off is one
  const MarkFinder::Found found = body_end_.find({.text = in.text, .at = in.at, .ended = ended});
  add(in.text.substr(in.at, found.at - in.at));
  in.at = in.kept = found.at;
  if (found.mark == MarkFinder::kNone) return false;
  end_body();
  in_header_ = true;
  const std::string& mark = body_end_.mark(found.mark);
  if (mark != kStart && mark != kChannel) in.at = in.kept = found.at + mark.size();  // those begin the next header
  return true;
}

void HarmonyParser::begin_body(const Header& header) {
  std::string name = header.recipient;
  const bool prefixed = name.starts_with("functions.");
  if (prefixed) name.erase(0, std::string_view("functions.").size());
  const bool built_in = std::any_of(std::begin(kBuiltIn), std::end(kBuiltIn), [&](std::string_view tool) {
    return name == tool || name.starts_with(std::string(tool) + ".");
  });
  body_ = header.channel == "analysis" && options_.reasoning ? Body::reasoning : Body::content;
  if (name.empty() || !options_.calls) return;
  if (name == "assistant" || (built_in && !prefixed && !options_.tools.has(name))) {
    body_ = Body::nothing;
    return;
  }
  body_ = Body::arguments;
  arguments_ = {};
  broken_ = false;
  empty_ = true;
  events_.begin_call(std::move(name), {});
}

void HarmonyParser::add(std::string_view text) {
  switch (body_) {
    case Body::content: events_.content(text); break;
    case Body::reasoning: events_.reasoning(text); break;
    case Body::nothing: break;
    case Body::arguments: {
      empty_ = empty_ && text.empty();
      Input in{.text = text};
      std::string out;
      if (!broken_ && !arguments_.done() && arguments_.read(in, out) == Read::failed) broken_ = true;
      events_.arguments(out);
      events_.arguments(in.rest());
      break;
    }
  }
}

void HarmonyParser::end_body() {
  if (events_.in_call()) {
    if (empty_) events_.arguments("{}");
    events_.end_call(false);
  }
  body_ = Body::content;
}

void HarmonyParser::end() {
  if (!events_.in_call()) return;
  cut_ = !arguments_.done();  // the mark that closes a call ends the answer too, and is often not in the text
  events_.end_call(cut_);
}

}  // namespace

std::unique_ptr<ChatParser> make_harmony_parser(const ChatParserOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace ingot
