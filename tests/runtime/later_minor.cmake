# SPDX-License-Identifier: Apache-2.0
# Writes fl_plugin.h as a later minor version might be: the minor is 1 and every struct with a size has one more field.
file(READ ${IN} text)
string(REPLACE "#define FL_ABI_MINOR 0" "#define FL_ABI_MINOR 1" later "${text}")
if(later STREQUAL text)
  message(FATAL_ERROR "${IN}: FL_ABI_MINOR is no longer 0: teach tests/runtime/later_minor.cmake the new number")
endif()
foreach(table IN ITEMS tensor call kernel device_properties device_api memory_api stream_api compiler_api graph_api
                       collectives_api profiler_api tuning_api host plugin)
  string(REPLACE "} fl_${table};" "  void* added_in_1_1;\n} fl_${table};" changed "${later}")
  if(changed STREQUAL later)
    message(FATAL_ERROR "${IN}: there is no struct fl_${table}")
  endif()
  set(later "${changed}")
endforeach()
file(WRITE ${OUT} "${later}")
