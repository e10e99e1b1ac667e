# Helpers shared by every folder: warnings, sanitizers, and one call to add a library. Those for tests are in Tests.cmake.

add_library(ingot_flags INTERFACE)
# For the sources here, not for those who link an installed library.
function(ingot_options)
  foreach(option ${ARGN})
    target_compile_options(ingot_flags INTERFACE $<BUILD_INTERFACE:${option}>)
  endforeach()
endfunction()
# Designated initializers that leave the rest to their defaults are the point of the plain structs here.
ingot_options(-Wall -Wextra -Werror -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  ingot_options(-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)  # false alarms on std::string concatenation in GCC 12
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12's std::stable_sort calls a function it declares deprecated itself, and clang says so at every use.
  ingot_options(-Wno-deprecated-declarations)
endif()
# x86-64-v1 has no FMA: never let the compiler contract a*b+c behind our back, so that the same source gives the same bits.
ingot_options(-ffp-contract=off)
target_include_directories(ingot_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include>)
if(INGOT_SANITIZE)
  # Pointers before they are used: up to a third of the compile time, and what is used wrongly AddressSanitizer sees.
  ingot_options(-fsanitize=${INGOT_SANITIZE} -fno-sanitize=null,object-size,pointer-overflow,vptr,function -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1)
  target_link_options(ingot_flags INTERFACE -fsanitize=${INGOT_SANITIZE})
endif()

# ingot_alone(file ...): compiled by itself. Kernels, whose neighbours must not change how they are optimized; files that are made
# in the build, so that an edit of what they are made of compiles nothing else; and files with names that clash.
function(ingot_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# ingot_hot(target ... [UNLESS sanitizer]): where a test's time goes. Sanitizer builds optimize nothing else: that halves their compile
# time. UNLESS: what that sanitizer looks at spends no time there.
function(ingot_hot)
  cmake_parse_arguments(ARG "" "UNLESS" "" ${ARGN})
  if(INGOT_SANITIZE AND NOT (ARG_UNLESS AND INGOT_SANITIZE MATCHES "${ARG_UNLESS}"))
    foreach(target ${ARG_UNPARSED_ARGUMENTS})
      target_compile_options(${target} PRIVATE -O1)
      set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
    endforeach()
  endif()
endfunction()

# ingot_fast(target ...): loops over weights, activations and texts.
function(ingot_fast)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O3)
    endforeach()
  endif()
endfunction()

# ingot_cold(target ...): where no time is spent, in a release either: it compiles in half the time.
function(ingot_cold)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O1)
    endforeach()
  endif()
endfunction()

# ingot_headers(name HEADERS <h> ... [LIBS lib ...]): headers that many files read, parsed once for all targets that ask for them by
# ingot_reads(target name) and have the same flags.
option(INGOT_PRECOMPILE "Parse common headers once" ON)
function(ingot_headers name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBS" ${ARGN})
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "")
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PUBLIC ingot_flags ${ARG_LIBS})
  if(INGOT_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  endif()
endfunction()
# For the compiler cache: what was parsed before is named in what it hashes, and carries no time.
if(INGOT_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  ingot_options(-fpch-preprocess)
elseif(INGOT_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  ingot_options("SHELL:-Xclang -fno-pch-timestamp")
endif()

function(ingot_reads target name)
  if(INGOT_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

ingot_headers(ingot_common_headers
  HEADERS <algorithm> <array> <atomic> <chrono> <filesystem> <functional> <map> <memory> <mutex> <optional> <span> <string> <thread>
    <unordered_map> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>
  LIBS fmt::fmt nlohmann_json::nlohmann_json)

# ingot_library(name [OWN_FLAGS] SOURCES a.cc ... LIBS other ...). OWN_FLAGS: files of it are compiled for other machines than the rest.
function(ingot_library name)
  cmake_parse_arguments(ARG "OWN_FLAGS" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ingot_flags fmt::fmt ${ARG_LIBS})
  if(NOT ARG_OWN_FLAGS)
    ingot_reads(${name} ingot_common_headers)
  endif()
  # Those that are fuzzed have the flags of the headers.
  set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ${INGOT_BUILD_FUZZERS})
endfunction()
