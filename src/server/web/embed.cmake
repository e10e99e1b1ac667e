# Joins the chat page into one document and writes it as a source file, with KaTeX beside it where there is one.
#   cmake -DSOURCE=folder -DOUTPUT=folder -DSTYLES=a.css;b.css -DSCRIPTS=a.js;b.js -DKATEX=folder -P embed.cmake
cmake_minimum_required(VERSION 3.25)

# The hash of a Content-Security-Policy: base64 of SHA-256. Three hex digits are two base64 digits.
function(csp_hash out text)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  string(APPEND hex "00")
  set(encoded "")
  foreach(i RANGE 0 63 3)
    string(SUBSTRING "${hex}" ${i} 3 group)
    math(EXPR high "0x${group} >> 6")
    math(EXPR low "0x${group} & 63")
    string(SUBSTRING "${digits}" ${high} 1 first)
    string(SUBSTRING "${digits}" ${low} 1 second)
    string(APPEND encoded "${first}${second}")
  endforeach()
  string(SUBSTRING "${encoded}" 0 43 encoded)
  set(${out} "'sha256-${encoded}='" PARENT_SCOPE)
endfunction()

function(join out)
  set(joined "\n")
  foreach(name IN LISTS ARGN)
    file(READ "${SOURCE}/${name}" text)
    string(APPEND joined "${text}")
  endforeach()
  if(joined MATCHES "</script|<script|<!--|</style|@STYLE@|@SCRIPT@|\r")
    message(FATAL_ERROR "chat page: ${ARGN} contain ${CMAKE_MATCH_0}, which cannot stand inside the document")
  endif()
  set(${out} "${joined}" PARENT_SCOPE)
endfunction()

join(style ${STYLES})
join(script ${SCRIPTS})
set(script "\n\"use strict\";${script}")
# What the page fetches later runs under the same rule as what is inside it: by its hash alone.
set(katex_version "")
set(katex_entries "")
file(REMOVE "${OUTPUT}/katex.js" "${OUTPUT}/katex.css")
if(KATEX)
  foreach(kind "js;text/javascript" "css;text/css")
    list(GET kind 0 suffix)
    list(GET kind 1 type)
    file(READ "${KATEX}/katex.${suffix}" text)
    csp_hash(hash "${text}")
    set(katex_${suffix}_hash " ${hash}")
    string(SHA256 digest "${katex_version}${hash}")
    string(SUBSTRING "${digest}" 0 12 katex_version)
    file(WRITE "${OUTPUT}/katex.${suffix}" "${text}")
    string(APPEND katex_entries ",\n          {\"/katex.${suffix}\", \"${type}; charset=utf-8\", R\"INGOT(${text})INGOT\", true}")
  endforeach()
endif()
string(REPLACE "@KATEX@" "${katex_version}" script "${script}")
csp_hash(style_hash "${style}")
csp_hash(script_hash "${script}")
file(READ "${SOURCE}/chat.html" page)
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
string(CONCAT csp "default-src 'none'; connect-src 'self'; img-src data:; font-src data:; style-src ${style_hash}${katex_css_hash}; "
  "script-src ${script_hash}${katex_js_hash}; "
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")

file(WRITE "${OUTPUT}/page.cc.new" "#include \"server/web/page.h\"

namespace ingot::server {

std::vector<WebFile> chat_page() {
  return {{\"/\", \"text/html; charset=utf-8\", R\"INGOT(${page})INGOT\"}${katex_entries}};
}
std::string_view chat_page_csp() { return \"${csp}\"; }

}  // namespace ingot::server
")
file(WRITE "${OUTPUT}/chat.html" "${page}")
file(WRITE "${OUTPUT}/chat.csp" "${csp}")
file(RENAME "${OUTPUT}/page.cc.new" "${OUTPUT}/page.cc")
