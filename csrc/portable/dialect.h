// SPDX-License-Identifier: Apache-2.0
// The same kernel in the language of each compiler.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::portable {

enum class Language { OpenClC, C99 };

/// Of a compiler's `dialect`, where there is a prelude for it.
std::optional<Language> language_of(const char* dialect);

/// "f32", "b8", ...; null for element types that the dialect has no arithmetic for (complex, float8).
const char* type_name(fl_dtype dtype);
/// The same, and of complex numbers (vectors of two): "c64", "c128".
const char* element_name(fl_dtype dtype);
/// The type that values of this one are computed in: f32 for the 16-bit floating-point ones, else the same.
const char* arithmetic_name(fl_dtype dtype);
/// Defines MAKE(re, im) and the type R of the parts, for code about complex numbers of this type.
std::string complex_defines(fl_dtype dtype);
/// Element types with arithmetic, as FL_DTYPE_BIT()s.
constexpr uint64_t kFloats =
    FL_DTYPE_BIT(FL_FLOAT16) | FL_DTYPE_BIT(FL_BFLOAT16) | FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64);
constexpr uint64_t kIntegers = FL_DTYPE_BIT(FL_UINT8) | FL_DTYPE_BIT(FL_INT8) | FL_DTYPE_BIT(FL_INT16) |
                               FL_DTYPE_BIT(FL_INT32) | FL_DTYPE_BIT(FL_INT64);
constexpr uint64_t kBool = FL_DTYPE_BIT(FL_BOOL);
constexpr uint64_t kComplex = FL_DTYPE_BIT(FL_COMPLEX64) | FL_DTYPE_BIT(FL_COMPLEX128);

bool is_floating(fl_dtype dtype);
/// An element type of the dialect with elements of the same size, for moving them as they are.
fl_dtype carrier(fl_dtype dtype);
int64_t element_bytes(fl_dtype dtype);  ///< 0: of a type without a name
bool is_integer(fl_dtype dtype);
bool is_complex(fl_dtype dtype);  ///< with arithmetic

struct Pointer {
  std::string type, name;
  bool written = false;
};

/// One kernel: `body` is C statements that see the pointers, the members of `p` and the number of the work item,
/// `item`.
struct Source {
  std::string head;                   ///< definitions and functions
  std::string members = "long none";  ///< of the struct that `p` is: declarations of i64 and u64
  std::vector<Pointer> pointers;
  std::string functions;  ///< that take a `Params`, which `p` is
  std::string body;
};

/// Elementary functions (kernels/math.h) for a head that has defined FL_F32 where values are computed in f32; with
/// `vectors` also those of vectors, and what else there is for these (kernels/vector.h).
std::string math_functions(bool vectors);

constexpr const char* kEntry = "fl_kernel";  ///< the name of every composed kernel

/// Parameters of the entry: address and offset of each pointer, then `p`.
std::string compose(Language language, bool has_f64, const Source& source);

}  // namespace torch_fl::portable
