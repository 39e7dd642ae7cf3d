// SPDX-License-Identifier: Apache-2.0
// The element types that the ABI and PyTorch both name.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::glue {

struct DtypeRow {
  fl_dtype fl;
  c10::ScalarType torch;
  const char* name;  ///< as in torch.<name>
};

inline constexpr std::array<DtypeRow, 21> kDtypes{{
    {FL_UINT8, c10::kByte, "uint8"},
    {FL_INT8, c10::kChar, "int8"},
    {FL_INT16, c10::kShort, "int16"},
    {FL_INT32, c10::kInt, "int32"},
    {FL_INT64, c10::kLong, "int64"},
    {FL_FLOAT16, c10::kHalf, "float16"},
    {FL_FLOAT32, c10::kFloat, "float32"},
    {FL_FLOAT64, c10::kDouble, "float64"},
    {FL_COMPLEX32, c10::kComplexHalf, "complex32"},
    {FL_COMPLEX64, c10::kComplexFloat, "complex64"},
    {FL_COMPLEX128, c10::kComplexDouble, "complex128"},
    {FL_BOOL, c10::kBool, "bool"},
    {FL_BFLOAT16, c10::kBFloat16, "bfloat16"},
    {FL_UINT16, c10::kUInt16, "uint16"},
    {FL_UINT32, c10::kUInt32, "uint32"},
    {FL_UINT64, c10::kUInt64, "uint64"},
    {FL_FLOAT8_E5M2, c10::kFloat8_e5m2, "float8_e5m2"},
    {FL_FLOAT8_E4M3FN, c10::kFloat8_e4m3fn, "float8_e4m3fn"},
    {FL_FLOAT8_E5M2FNUZ, c10::kFloat8_e5m2fnuz, "float8_e5m2fnuz"},
    {FL_FLOAT8_E4M3FNUZ, c10::kFloat8_e4m3fnuz, "float8_e4m3fnuz"},
    {FL_FLOAT8_E8M0FNU, c10::kFloat8_e8m0fnu, "float8_e8m0fnu"},
}};

}  // namespace torch_fl::glue
