// Strict and counting modes: clang's kernel-address instrumentation calls these before every load and store; also while
// the module is being loaded, before it has a runtime.
#pragma once

#include "sm/runtime.h"

#define SM_TRACE_ACCESS(kind, name, bytes)                                                                            \
  extern "C" __attribute__((visibility("hidden"), used, no_sanitize("kernel-address"))) void name(ulong address) {    \
    if (sm::softmetal_runtime) sm::softmetal_runtime->kind((const void*)address, bytes, __builtin_return_address(0)); \
  }
#define SM_TRACE_RANGE(kind, name)                                                                                    \
  extern "C" __attribute__((visibility("hidden"), used, no_sanitize("kernel-address"))) void name(ulong address,      \
                                                                                                  ulong bytes) {      \
    if (sm::softmetal_runtime) sm::softmetal_runtime->kind((const void*)address, bytes, __builtin_return_address(0)); \
  }
SM_TRACE_ACCESS(load, __asan_load1_noabort, 1)
SM_TRACE_ACCESS(load, __asan_load2_noabort, 2)
SM_TRACE_ACCESS(load, __asan_load4_noabort, 4)
SM_TRACE_ACCESS(load, __asan_load8_noabort, 8)
SM_TRACE_ACCESS(load, __asan_load16_noabort, 16)
SM_TRACE_RANGE(load, __asan_loadN_noabort)
SM_TRACE_ACCESS(store, __asan_store1_noabort, 1)
SM_TRACE_ACCESS(store, __asan_store2_noabort, 2)
SM_TRACE_ACCESS(store, __asan_store4_noabort, 4)
SM_TRACE_ACCESS(store, __asan_store8_noabort, 8)
SM_TRACE_ACCESS(store, __asan_store16_noabort, 16)
SM_TRACE_RANGE(store, __asan_storeN_noabort)

extern "C" __attribute__((visibility("hidden"), used, no_sanitize("kernel-address"))) void* __asan_memcpy(
    void* to, const void* from, ulong bytes) {
  if (sm::softmetal_runtime) sm::softmetal_runtime->load(from, bytes, __builtin_return_address(0));
  if (sm::softmetal_runtime) sm::softmetal_runtime->store(to, bytes, __builtin_return_address(0));
  return __builtin_memcpy(to, from, bytes);
}
extern "C" __attribute__((visibility("hidden"), used, no_sanitize("kernel-address"))) void* __asan_memmove(
    void* to, const void* from, ulong bytes) {
  if (sm::softmetal_runtime) sm::softmetal_runtime->load(from, bytes, __builtin_return_address(0));
  if (sm::softmetal_runtime) sm::softmetal_runtime->store(to, bytes, __builtin_return_address(0));
  return __builtin_memmove(to, from, bytes);
}
extern "C" __attribute__((visibility("hidden"), used, no_sanitize("kernel-address"))) void* __asan_memset(void* to,
                                                                                                          int value,
                                                                                                          ulong bytes) {
  if (sm::softmetal_runtime) sm::softmetal_runtime->store(to, bytes, __builtin_return_address(0));
  return __builtin_memset(to, value, bytes);
}
extern "C" __attribute__((visibility("hidden"), used, no_sanitize("kernel-address"))) void __asan_handle_no_return() {}
