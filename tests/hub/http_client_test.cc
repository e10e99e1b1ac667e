#include "hub/http_client.h"

#include <gtest/gtest.h>

namespace ingot::hub {
namespace {

TEST(Addresses, Origins) {
  EXPECT_EQ(origin_of("https://Hub.test/a"), "https://hub.test:443");
  EXPECT_EQ(origin_of("https://hub.test:443/b?c"), origin_of("https://hub.test/"));
  EXPECT_NE(origin_of("https://hub.test:444/"), origin_of("https://hub.test/"));
  EXPECT_NE(origin_of("http://hub.test/"), origin_of("https://hub.test/"));
  EXPECT_NE(origin_of("https://hub.test.evil.test/"), origin_of("https://hub.test/"));
  EXPECT_EQ(origin_of("https://hub.test@evil.test/"), "https://evil.test:443");
  EXPECT_EQ(origin_of("file:///etc/passwd"), "");
}

TEST(Addresses, Locations) {
  EXPECT_EQ(resolve_location("http://hub.test:8/a/b", "/c"), "http://hub.test:8/c");
  EXPECT_EQ(resolve_location("http://hub.test:8/a/b", "http://cdn.test/c"), "http://cdn.test/c");
  EXPECT_EQ(resolve_location("http://hub.test:8/a/b", "file:///etc/passwd"), "");
  EXPECT_EQ(resolve_location("http://hub.test:8/a/b", ""), "");
}

TEST(Addresses, Encoding) {
  EXPECT_EQ(url_encode("a b/ü?", true), "a%20b/%C3%BC%3F");
  EXPECT_EQ(url_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace ingot::hub
