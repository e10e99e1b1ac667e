// What must hold for the document as it is embedded. What it does is tested in a browser: page_test.py.
#include "server/web/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ingot::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ChatPage, IsOneWholeDocument) {
  EXPECT_THAT(std::string(chat_page()), StartsWith("<!doctype html>"));
  EXPECT_TRUE(chat_page().ends_with("</html>\n"));
  EXPECT_THAT(std::string(chat_page()), Not(HasSubstr("@S")));  // every placeholder was filled
  EXPECT_LT(chat_page().size(), 200'000u);
}

// Text from the model must have no way to become HTML, nor code.
TEST(ChatPage, NeverParsesTextAsHtml) {
  for (const char* name :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
        "setHTML", "srcdoc", "eval(", "new Function", "setTimeout('", "javascript:", "dangerouslySet"})
    EXPECT_THAT(std::string(chat_page()), Not(HasSubstr(name)));
}

TEST(ChatPage, LoadsNothingFromElsewhere) {
  const std::string page(chat_page());
  for (const char* name :
       {" src=", "@import", "url(", "<link rel=\"stylesheet", "//cdn", "<base", "WebSocket", "sendBeacon"})
    EXPECT_THAT(page, Not(HasSubstr(name)));
  // The only address in it names SVG.
  for (size_t at = page.find("://"); at != std::string::npos; at = page.find("://", at + 1)) {
    EXPECT_EQ(page.substr(at - 4, 25), "http://www.w3.org/2000/sv") << page.substr(at - 20, 60);
  }
}

TEST(ChatPage, PolicyAllowsOnlyItsOwnScriptAndStyle) {
  const std::string policy(chat_page_csp());
  EXPECT_THAT(policy, StartsWith("default-src 'none'; connect-src 'self'; img-src data:; style-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("; script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("*")));
  EXPECT_EQ(policy.find('\n'), std::string::npos);
  // No attribute that the policy would block.
  EXPECT_THAT(std::string(chat_page()), Not(HasSubstr(" style=\"")));
  EXPECT_THAT(std::string(chat_page()), Not(HasSubstr(" onclick=\"")));
}

}  // namespace
}  // namespace ingot::server
