# Joins the kernels into one source, as Metal's run-time compiler takes no includes of our own, and embeds it in C++:
# cmake -DFOLDER=... -DSOURCE=joined.metal -DEMBEDDED=kernel_source.cc -P join_kernels.cmake
file(GLOB headers ${FOLDER}/*.h)
file(GLOB kernels ${FOLDER}/*.metal)
list(SORT headers)
list(SORT kernels)
list(REMOVE_ITEM headers ${FOLDER}/common.h ${FOLDER}/params.h)
set(joined "")
foreach(path ${FOLDER}/params.h ${FOLDER}/common.h ${headers} ${kernels})
  get_filename_component(name ${path} NAME)
  file(READ ${path} text)
  string(REGEX REPLACE "#include \"[^\"]*\"" "" text "${text}")
  string(REPLACE "#pragma once" "" text "${text}")
  string(APPEND joined "#line 1 \"${name}\"\n${text}\n")
endforeach()
# What a library compiled from this can be known by.
string(SHA256 hash "${joined}")
string(SUBSTRING ${hash} 0 16 hash)
set(stamp ingot_source_${hash})
string(APPEND joined "#line 1 \"stamp\"\n[[kernel]] void ${stamp}() {}\n")
file(WRITE ${SOURCE} "${joined}")

# Compilers limit the length of one literal: pieces of it, side by side.
set(pieces "")
set(rest "${joined}")
string(LENGTH "${rest}" left)
while(left GREATER 0)
  string(SUBSTRING "${rest}" 0 8000 piece)
  string(APPEND pieces "R\"ingot(${piece})ingot\"\n")
  if(left GREATER 8000)
    string(SUBSTRING "${rest}" 8000 -1 rest)
  else()
    set(rest "")
  endif()
  string(LENGTH "${rest}" left)
endwhile()
file(WRITE ${EMBEDDED}
  "#include \"backend/metal/library.h\"\n\nnamespace ingot::metal {\n\nconst char* const kKernelSource =\n${pieces};\n"
  "const char* const kKernelStamp = \"${stamp}\";\n\n}  // namespace ingot::metal\n")
