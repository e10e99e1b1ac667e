# One GoogleTest binary a folder, run as several ctest entries, so that cores share its work and a label builds and runs what it
# needs.

function(ingot_test_flags name hot)
  # As libraries are, for a program has no headers to share.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  if(INGOT_SANITIZE)
    target_compile_definitions(${name} PRIVATE INGOT_SANITIZED)
    # It is the libraries that are looked at.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE $<IF:$<BOOL:${hot}>,-O1,-O0>)
  endif()
endfunction()

if(INGOT_BUILD_TESTS)
  find_package(GTest REQUIRED)
  ingot_headers(ingot_test_headers
    HEADERS <algorithm> <array> <atomic> <chrono> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <random> <span>
      <string> <thread> <unordered_map> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp> <gtest/gtest.h> <gmock/gmock.h>
    LIBS fmt::fmt nlohmann_json::nlohmann_json GTest::gtest GTest::gmock)
  ingot_test_flags(ingot_test_headers OFF)
endif()

# ingot_test_binary(name [HOT] SOURCES a_test.cc ... LIBS lib ...): the binary alone; its cases are run by its parts. HOT: its own
# code takes so much of its time that optimizing it pays.
function(ingot_test_binary name)
  cmake_parse_arguments(ARG "HOT" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ingot_flags fmt::fmt ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE INGOT_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
  ingot_test_flags(${name} ${ARG_HOT})
  if(NOT ARG_HOT OR INGOT_SANITIZE)
    ingot_reads(${name} ingot_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

# ctest counts two for an entry that keeps a core busy and one for an entry that mostly waits, and is told to count to twice the
# cores and one (scripts/test.sh): so one that waits runs beside as many busy ones as there are cores.
function(ingot_busy)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 2)
endfunction()

# How an entry is scheduled, by the caller's arguments WAITS and COST.
function(ingot_schedule name)
  if(NOT ARG_WAITS)
    ingot_busy(${name})
  endif()
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
endfunction()

# ingot_test_part(name OF binary [FILTER pattern ... [- pattern ...]] [LABELS l ...] [TIMEOUT seconds] [COST seconds]
#                 [ENVIRONMENT A=b ...] [WAITS])
# The cases that the patterns name, less those behind the dash; without FILTER the cases that no part before it has named, so that
# none is forgotten. COST: the long ones begin first.
function(ingot_test_part name)
  cmake_parse_arguments(ARG "WAITS" "OF;TIMEOUT;COST" "FILTER;LABELS;ENVIRONMENT" ${ARGN})
  get_target_property(taken ${ARG_OF} INGOT_TAKEN)
  if(NOT taken)
    set(taken "")
  endif()
  if(ARG_FILTER)
    list(JOIN ARG_FILTER ":" filter)
    string(REPLACE ":-:" "-" filter "${filter}")
    string(REGEX REPLACE "-.*" "" named "${filter}")
    set_target_properties(${ARG_OF} PROPERTIES INGOT_TAKEN "${taken}:${named}")
  else()
    set(filter "*-${taken}")
  endif()
  # Counted by the entry's name, whichever other entries of the binary run beside it.
  add_test(NAME ${name} COMMAND ${ARG_OF} --gtest_brief=1 --gtest_filter=${filter}
    --gtest_output=xml:${CMAKE_BINARY_DIR}/results/${name}.xml)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(INGOT_SANITIZE MATCHES address AND ARG_LABELS MATCHES metal)
    # Threads of a kernel are fibers; for each of them the sanitizer would map and unmap a second stack.
    list(APPEND ARG_ENVIRONMENT ASAN_OPTIONS=detect_stack_use_after_return=0)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}")
  ingot_schedule(${name})
endfunction()

# ingot_test(name SOURCES a_test.cc ... LIBS lib ... [LABELS l] [TIMEOUT seconds] [COST seconds] [WAITS]): a binary run as one entry.
function(ingot_test name)
  cmake_parse_arguments(ARG "WAITS" "TIMEOUT;COST" "SOURCES;LIBS;LABELS" ${ARGN})
  set(waits "")
  if(ARG_WAITS)
    set(waits WAITS)
  endif()
  ingot_test_binary(${name} SOURCES ${ARG_SOURCES} LIBS ${ARG_LIBS})
  ingot_test_part(${name} OF ${name} FILTER * LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST} ${waits})
endfunction()
