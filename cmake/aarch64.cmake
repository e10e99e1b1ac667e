# Cross-builds for 64-bit Arm on Debian and runs the tests under qemu-user. Once, as root:
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install g++-aarch64-linux-gnu qemu-user libfmt-dev:arm64 libgtest-dev:arm64 libpcre2-dev:arm64 libutf8proc-dev:arm64
# then
#   cmake -S . -B build-aarch64 -G Ninja --toolchain cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release
#   ninja -C build-aarch64 backend_test && ctest --test-dir build-aarch64 -R backend_cpu
# tests/neon is a smaller project that needs none of those libraries.
# INGOT_AARCH64_ROOT may name another place where those libraries are unpacked.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(INGOT_AARCH64_ROOT "" CACHE PATH "Where the arm64 libraries lie, if not in the system")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES INGOT_AARCH64_ROOT)
list(PREPEND CMAKE_PREFIX_PATH ${INGOT_AARCH64_ROOT}/usr)
set(ENV{PKG_CONFIG_LIBDIR} ${INGOT_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
if(INGOT_AARCH64_ROOT)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${INGOT_AARCH64_ROOT})
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${INGOT_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
