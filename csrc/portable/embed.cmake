# SPDX-License-Identifier: Apache-2.0
# Writes OUT: a C++ file with the text of FILES (separated by |), by name.
string(REPLACE "|" ";" FILES "${FILES}")
set(text "// Generated from kernels/.\n#include <cstring>\n\n#include \"portable/text.h\"\n\nnamespace torch_fl::portable {\n\n")
string(APPEND text "const char* text_of(const char* name) {\n")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" content)
  string(APPEND text "  if (std::strcmp(name, \"${name}\") == 0) return R\"FLTEXT(")
  string(APPEND text "${content}")
  string(APPEND text ")FLTEXT\";\n")
endforeach()
string(APPEND text "  return nullptr;\n}\n\n}  // namespace torch_fl::portable\n")
file(WRITE "${OUT}" "${text}")
