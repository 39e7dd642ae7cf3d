# SPDX-License-Identifier: Apache-2.0
# Targets fl_torch (headers and libraries of the installed torch) and fl_python (headers of the interpreter).
#
# Done by hand, without find_package(Torch): that file looks for toolkits the build may have been made with (CUDA,
# MKL, ROCm) and fails where they are not installed, though nothing here needs them. torch is not imported either: an
# autoloaded, half-built torch_fl must never stand in the way of building it.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(Threads REQUIRED)

execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_torch.py"
  OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_failed ERROR_VARIABLE torch_error OUTPUT_STRIP_TRAILING_WHITESPACE)
if(torch_failed)
  message(FATAL_ERROR "No usable torch in ${Python_EXECUTABLE}:\n${torch_error}")
endif()
list(GET torch_facts 0 TORCH_DIR)
list(GET torch_facts 1 TORCH_VERSION)
list(GET torch_facts 2 TORCH_CXX11_ABI)
list(GET torch_facts 3 FL_EXT_SUFFIX)
message(STATUS "torch ${TORCH_VERSION} at ${TORCH_DIR} (C++11 ABI ${TORCH_CXX11_ABI})")

add_library(fl_python INTERFACE)
target_link_libraries(fl_python INTERFACE Python::Module)

add_library(fl_torch INTERFACE)
# pybind11 is torch's own copy: types cross the border only between modules built with one and the same.
target_include_directories(
  fl_torch SYSTEM INTERFACE "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(
  fl_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI} TORCH_FL_BUILT_FOR_TORCH="${TORCH_VERSION}")
target_link_directories(fl_torch INTERFACE "${TORCH_DIR}/lib")
target_link_libraries(fl_torch INTERFACE torch_python torch torch_cpu c10 Threads::Threads)
