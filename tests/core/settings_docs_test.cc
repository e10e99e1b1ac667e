#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "core/settings.h"

namespace ingot {
namespace {

// The table for people and the table in the code are written by hand; this keeps them together.
TEST(SettingsDocs, EveryVariableIsDocumentedWithItsDefault) {
  std::ifstream file(INGOT_FIXTURES "/../../docs/settings.md");
  ASSERT_TRUE(file) << "docs/settings.md is not there";
  std::stringstream text;
  text << file.rdbuf();
  for (const SettingInfo& setting : setting_table()) {
    const std::string name = "| `" + std::string(setting.name) + "` |";
    const size_t start = text.str().find(name);
    ASSERT_NE(start, std::string::npos) << setting.name << " is not in docs/settings.md";
    const std::string row = text.str().substr(start, text.str().find('\n', start) - start);
    EXPECT_NE(row.find(setting.default_value, name.size()), std::string::npos)
        << "docs/settings.md: the default of " << setting.name << " is " << setting.default_value;
  }
}

}  // namespace
}  // namespace ingot
