#include "core/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace ingot {
namespace {

// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

std::string error_of(const char* name, const char* value) {
  Variable variable(name, value);
  try {
    Settings::from_environment();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_call);
    return error.what();
  }
  return "";
}

TEST(Settings, Defaults) {
  const Settings s = Settings::from_environment();
  EXPECT_EQ(s.scratch_pool_mb, 512);
  EXPECT_EQ(s.max_batch_size, 0);
  EXPECT_TRUE(s.use_engine);
}

TEST(Settings, ReadsValues) {
  Variable pool("VLLM_METAL_SCRATCH_POOL_MB", "64");
  Variable strict("VLLM_METAL_STRICT_NO_MPS", "1");
  Variable empty("VLLM_METAL_MAX_BATCH_SIZE", "");
  const Settings s = Settings::from_environment();
  EXPECT_EQ(s.scratch_pool_mb, 64);
  EXPECT_TRUE(s.strict_no_mps);
  EXPECT_EQ(s.max_batch_size, 0);
}

TEST(Settings, BadValuesNameTheVariable) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"VLLM_METAL_SCRATCH_POOL_MB", "lots"},
                                                                  {"VLLM_METAL_SCRATCH_POOL_MB", "0"},
                                                                  {"VLLM_METAL_SCRATCH_POOL_MB", "12x"},
                                                                  {"VLLM_METAL_MAX_BATCH_SIZE", "-5"},
                                                                  {"VLLM_METAL_MAX_BATCH_SIZE", "99999999999999999999"},
                                                                  {"VLLM_APPLE_USE_ENGINE", "yes"},
                                                                  {"VLLM_METAL_ATTENTION", "0"},
                                                                  {"VLLM_APPLE_ENGINE_PREFILL", "0"},
                                                                  {"INGOT_DEVICE", "tpu"}}) {
    EXPECT_THAT(error_of(name, value), testing::HasSubstr(name)) << name << "=" << value;
  }
}

}  // namespace
}  // namespace ingot
