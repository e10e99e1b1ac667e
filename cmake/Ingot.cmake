# Helpers shared by every folder: warnings, sanitizers, and one call to add a library or a test.

add_library(ingot_flags INTERFACE)
# Designated initializers that leave the rest to their defaults are the point of the plain structs here.
target_compile_options(ingot_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ingot_flags INTERFACE -Wno-restrict)  # false alarms on std::string concatenation in GCC 12
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12's std::stable_sort calls a function it declares deprecated itself, and clang says so at every use.
  target_compile_options(ingot_flags INTERFACE -Wno-deprecated-declarations)
endif()
# x86-64-v1 has no FMA: never let the compiler contract a*b+c behind our back, so that the same source gives the same bits.
target_compile_options(ingot_flags INTERFACE -ffp-contract=off)
target_include_directories(ingot_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(INGOT_SANITIZE)
  target_compile_options(ingot_flags INTERFACE -fsanitize=${INGOT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  target_link_options(ingot_flags INTERFACE -fsanitize=${INGOT_SANITIZE})
endif()

# ingot_alone(file ...): compiled by itself. Kernels, whose neighbours must not change how they are optimized; files that are made
# in the build, so that an edit of what they are made of compiles nothing else; and files with names that clash.
function(ingot_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# ingot_library(name SOURCES a.cc ... LIBS other ...)
function(ingot_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ingot_flags ${ARG_LIBS})
endfunction()

# ingot_test(name SOURCES a_test.cc ... LIBS lib ... [LABELS l] [TIMEOUT seconds]): one GoogleTest binary, one ctest entry.
function(ingot_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE INGOT_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if(INGOT_SANITIZE MATCHES address AND ARG_LABELS MATCHES metal)
    # Threads of a kernel are fibers; for each of them the sanitizer would map and unmap a second stack.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_stack_use_after_return=0)
  endif()
endfunction()

# ingot_test_binary(name SOURCES a_test.cc ... LIBS lib ...): one GoogleTest binary, run by the entries that
# ingot_test_entry(entry BINARY name FILTER a.*:b.* [LABELS l] [ENVIRONMENT A=b ...] [COST seconds]) adds to ctest.
function(ingot_test_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE INGOT_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures" $<$<BOOL:${INGOT_SANITIZE}>:INGOT_SANITIZED>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()
function(ingot_test_entry name)
  cmake_parse_arguments(ARG "" "BINARY;COST" "FILTER;LABELS;ENVIRONMENT" ${ARGN})
  string(REPLACE ";" ":" filter "${ARG_FILTER}")
  string(REPLACE ":-:" ":-" filter "${filter}")
  add_test(NAME ${name} COMMAND ${ARG_BINARY} --gtest_brief=1 --gtest_filter=${filter})
  # Entries of one binary must not write over each other's results.
  list(APPEND ARG_ENVIRONMENT GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/results/${name}.xml)
  if(INGOT_SANITIZE MATCHES address)
    # Threads of a kernel are fibers; for each of them the sanitizer would map and unmap a second stack.
    list(APPEND ARG_ENVIRONMENT ASAN_OPTIONS=detect_stack_use_after_return=0)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
  add_custom_target(${name} DEPENDS ${ARG_BINARY})
endfunction()
