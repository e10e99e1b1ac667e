// What must hold for the page's files as they are embedded. What they do is tested in a browser: page_test.py.
#include "server/web/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ingot::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string document() { return std::string(chat_page().at(0).text); }

TEST(ChatPage, IsOneWholeDocument) {
  EXPECT_EQ(chat_page().at(0).path, "/");
  EXPECT_FALSE(chat_page().at(0).versioned);
  EXPECT_THAT(document(), StartsWith("<!doctype html>"));
  EXPECT_TRUE(document().ends_with("</html>\n"));
  for (const char* name : {"@STYLE@", "@SCRIPT@", "@KATEX@"}) EXPECT_THAT(document(), Not(HasSubstr(name)));
  EXPECT_LT(document().size(), 200'000u);
}

// With it the page sets formulas; it comes when the first one does.
TEST(ChatPage, KatexStandsBesideIt) {
  const std::vector<WebFile> files = chat_page();
  if (files.size() == 1) GTEST_SKIP() << "this build has no KaTeX: run scripts/fetch_katex.sh and configure again";
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[1].path, "/katex.js");
  EXPECT_EQ(files[2].path, "/katex.css");
  for (size_t i = 1; i < files.size(); ++i) {
    EXPECT_TRUE(files[i].versioned);
    EXPECT_THAT(std::string(files[i].text), StartsWith("/* KaTeX "));
    EXPECT_LT(files[i].text.size(), 400'000u);
  }
  const std::string style(files[2].text);
  EXPECT_THAT(style, HasSubstr("url(\"data:font/woff2;base64,"));
  for (const char* name : {"url(\"http", "url(fonts", "font/woff;", "font/ttf"})
    EXPECT_THAT(style, Not(HasSubstr(name)));
  for (const char* name : {"innerHTML", "eval(", "new Function", "document.write"})
    EXPECT_THAT(std::string(files[1].text), Not(HasSubstr(name)));
}

// Text from the model must have no way to become HTML, nor code.
TEST(ChatPage, NeverParsesTextAsHtml) {
  for (const char* name :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
        "setHTML", "srcdoc", "eval(", "new Function", "setTimeout('", "javascript:", "dangerouslySet"})
    EXPECT_THAT(document(), Not(HasSubstr(name)));
}

TEST(ChatPage, LoadsNothingFromElsewhere) {
  const std::string page = document();
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
  EXPECT_THAT(policy,
              StartsWith("default-src 'none'; connect-src 'self'; img-src data:; font-src data:; style-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("; script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("*")));
  EXPECT_EQ(policy.find('\n'), std::string::npos);
  // No attribute that the policy would block.
  EXPECT_THAT(document(), Not(HasSubstr(" style=\"")));
  EXPECT_THAT(document(), Not(HasSubstr(" onclick=\"")));
}

}  // namespace
}  // namespace ingot::server
