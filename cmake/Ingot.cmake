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
  ingot_options(-Wno-restrict)  # false alarms on std::string concatenation in GCC 12
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
  ingot_options(-fsanitize=${INGOT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
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

# ingot_library(name SOURCES a.cc ... LIBS other ...)
function(ingot_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ingot_flags ${ARG_LIBS})
endfunction()
