#include "hub/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "formats/test_files.h"

namespace ingot::hub {
namespace {

class HubSettingsTest : public ::testing::Test {
 protected:
  HubSettingsTest() {
    for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE",
                             "HF_HUB_DOWNLOAD_TIMEOUT", "SSL_CERT_FILE", "XDG_CACHE_HOME"})
      unsetenv(name);
    setenv("HOME", folder_.path().c_str(), 1);
  }
  TempDir folder_;
};

TEST_F(HubSettingsTest, CacheFolder) {
  EXPECT_EQ(HubSettings::from_environment().cache, folder_ / ".cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(HubSettings::from_environment().cache, "/x/huggingface/hub");
  setenv("HF_HOME", "/h", 1);
  EXPECT_EQ(HubSettings::from_environment().cache, "/h/hub");
  setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(HubSettings::from_environment().cache, "/c");
  setenv("HF_HUB_CACHE", "~/c", 1);
  EXPECT_EQ(HubSettings::from_environment().cache, folder_ / "c");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
  EXPECT_EQ(HubSettings::from_environment().cache, "");
}

TEST_F(HubSettingsTest, Token) {
  EXPECT_EQ(HubSettings::from_environment().token, "");
  setenv("HF_HOME", folder_.path().c_str(), 1);
  write_file(folder_ / "token", "hf_file\n");
  EXPECT_EQ(HubSettings::from_environment().token, "hf_file");
  setenv("HF_TOKEN", "hf_variable", 1);
  EXPECT_EQ(HubSettings::from_environment().token, "hf_variable");
  setenv("HF_TOKEN", "secret\r\nX-Header: 1", 1);
  try {
    HubSettings::from_environment();
    ADD_FAILURE() << "a token with line ends was taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos) << error.what();
  }
}

TEST_F(HubSettingsTest, TheRest) {
  EXPECT_FALSE(HubSettings::from_environment().offline);
  setenv("HF_HUB_OFFLINE", "YES", 1);
  setenv("HF_ENDPOINT", "http://127.0.0.1:1//", 1);
  setenv("HF_HUB_DOWNLOAD_TIMEOUT", "5", 1);
  const HubSettings settings = HubSettings::from_environment();
  EXPECT_TRUE(settings.offline);
  EXPECT_EQ(settings.endpoint, "http://127.0.0.1:1");
  EXPECT_EQ(settings.stall_s, 5);
  setenv("HF_HUB_OFFLINE", "perhaps", 1);
  expect_error(ErrorKind::bad_call, "HF_HUB_OFFLINE", [] { HubSettings::from_environment(); });
  unsetenv("HF_HUB_OFFLINE");
  setenv("HF_ENDPOINT", "ftp://x", 1);
  expect_error(ErrorKind::bad_call, "HF_ENDPOINT", [] { HubSettings::from_environment(); });
  unsetenv("HF_ENDPOINT");
  setenv("SSL_CERT_FILE", "/no/such/file", 1);
  expect_error(ErrorKind::bad_call, "SSL_CERT_FILE", [] { HubSettings::from_environment(); });
  write_file(folder_ / "ca.pem", "x");
  setenv("SSL_CERT_FILE", (folder_ / "ca.pem").c_str(), 1);
  EXPECT_EQ(HubSettings::from_environment().ca_file, folder_ / "ca.pem");
}

}  // namespace
}  // namespace ingot::hub
