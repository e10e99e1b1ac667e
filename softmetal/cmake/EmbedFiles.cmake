# cmake -DROOT=dir -DFILES="a|b" -DOUT=x.cc -P EmbedFiles.cmake: text files into a C++ table of (path, text).
set(code "#include \"compiler/shim_files.h\"\n\nnamespace softmetal {\n\nconst ShimFile kShimFiles[] = {\n")
string(REPLACE "|" ";" FILES "${FILES}")
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" text)
  string(APPEND code "    {\"${file}\", R\"SOFTMETAL(${text})SOFTMETAL\"},\n")
endforeach()
string(APPEND code "    {nullptr, nullptr},\n};\n\n}  // namespace softmetal\n")
file(WRITE "${OUT}" "${code}")
