# SPDX-License-Identifier: Apache-2.0
# Language level, optimisation, compiler cache, and where the built libraries go.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g0")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  # The sloppiness lets ccache serve sources that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

# The chips built with the core (-DTORCH_FL_CHIPS="a;b" to choose); a chip's folder holds everything that is about it.
if(NOT DEFINED TORCH_FL_CHIPS)
  file(GLOB TORCH_FL_CHIPS RELATIVE "${PROJECT_SOURCE_DIR}/chips" CONFIGURE_DEPENDS
       "${PROJECT_SOURCE_DIR}/chips/*/CMakeLists.txt")
  list(TRANSFORM TORCH_FL_CHIPS REPLACE "/CMakeLists.txt$" "")
endif()

# In place: libraries are written straight into the source package, where an editable install and a plain
# `PYTHONPATH=.` find them. A wheel is built out of place and installs them.
set(in_place_default ON)
if(DEFINED SKBUILD_STATE AND NOT SKBUILD_STATE STREQUAL "editable")
  set(in_place_default OFF)
endif()
option(TORCH_FL_IN_PLACE "Write built libraries into the source tree" ${in_place_default})

# fl_place(<target> <folder inside the package>): where the target's library belongs ("." is the package itself).
function(fl_place target folder)
  if(TORCH_FL_IN_PLACE)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_SOURCE_DIR}/torch_fl/${folder}")
  else()
    install(TARGETS ${target} LIBRARY DESTINATION "torch_fl/${folder}")
  endif()
endfunction()
