// SPDX-License-Identifier: Apache-2.0
#include "dialect.h"

#include <cstring>

#include "text.h"

namespace torch_fl::portable {
namespace {

std::string pointer_type(const Pointer& pointer) {
  return "GLOBAL " + std::string(pointer.written ? "" : "const ") + pointer.type + "*";
}

std::string body_function(const Source& source) {
  std::string text = "FUNCTION void fl_body(";
  for (const Pointer& pointer : source.pointers) text += pointer_type(pointer) + " " + pointer.name + ", ";
  return text + "const Params p, const i64 item) {\n" + source.body + "}\n";
}

std::string opencl_entry(const Source& source) {
  std::string parameters, arguments;
  for (const Pointer& pointer : source.pointers) {
    parameters += "__global char* " + pointer.name + "_at, ulong " + pointer.name + "_offset, ";
    arguments += "(" + pointer_type(pointer) + ")(" + pointer.name + "_at + " + pointer.name + "_offset), ";
  }
  return std::string("__kernel void ") + kEntry + "(" + parameters + "const Params p) {\n  fl_body(" + arguments +
         "p, (i64)get_global_id(0));\n}\n";
}

std::string c_entry(const Source& source) {
  std::string text = std::string("void ") + kEntry +
                     "(void* const* args, const uint64_t* begin, const uint64_t* end) {\n"
                     "  for (uint64_t item = begin[0]; item < end[0]; ++item) fl_body(";
  size_t i = 0;
  for (const Pointer& pointer : source.pointers) {
    const std::string at = std::to_string(i), offset = std::to_string(i + 1);
    text += "(" + pointer_type(pointer) + ")(*(char**)args[" + at + "] + *(uint64_t*)args[" + offset + "]), ";
    i += 2;
  }
  return text + "*(const Params*)args[" + std::to_string(i) + "], (i64)item);\n}\n";
}

}  // namespace

std::optional<Language> language_of(const char* dialect) {
  if (std::strcmp(dialect, "opencl-c") == 0) return Language::OpenClC;
  if (std::strcmp(dialect, "c99") == 0) return Language::C99;
  return std::nullopt;
}

const char* type_name(fl_dtype dtype) {
  switch (dtype) {
    case FL_UINT8:
      return "u8";
    case FL_INT8:
      return "i8";
    case FL_INT16:
      return "i16";
    case FL_INT32:
      return "i32";
    case FL_INT64:
      return "i64";
    case FL_FLOAT16:
      return "f16";
    case FL_FLOAT32:
      return "f32";
    case FL_FLOAT64:
      return "f64";
    case FL_BOOL:
      return "b8";
    case FL_BFLOAT16:
      return "bf16";
    default:
      return nullptr;
  }
}

const char* element_name(fl_dtype dtype) {
  if (is_complex(dtype)) return dtype == FL_COMPLEX64 ? "c64" : "c128";
  return type_name(dtype);
}

const char* arithmetic_name(fl_dtype dtype) {
  return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16 ? "f32" : element_name(dtype);
}

std::string complex_defines(fl_dtype dtype) {
  return std::string("#define R ") + (dtype == FL_COMPLEX128 ? "f64" : "f32") + "\n#define MAKE(re, im) MAKE_" +
         element_name(dtype) + "(re, im)\n";
}

bool is_floating(fl_dtype dtype) {
  return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16 || dtype == FL_FLOAT32 || dtype == FL_FLOAT64;
}

bool is_integer(fl_dtype dtype) { return dtype >= FL_UINT8 && dtype <= FL_INT64; }

bool is_complex(fl_dtype dtype) { return dtype == FL_COMPLEX64 || dtype == FL_COMPLEX128; }

std::string math_functions(bool vectors) {
  std::string text = std::string(text_of("math_scalar.h")) + text_of("math.h");
  if (vectors) text += std::string(text_of("vector.h")) + text_of("math_vector.h") + text_of("math.h");
  return text;
}

int64_t element_bytes(fl_dtype dtype) {
  switch (carrier(dtype)) {
    case FL_INT16:
      return 2;
    case FL_INT32:
      return 4;
    case FL_INT64:
      return 8;
    case FL_COMPLEX128:
      return 16;
    case FL_DTYPE_OTHER:
      return 0;
    default:
      return 1;
  }
}

fl_dtype carrier(fl_dtype dtype) {
  switch (dtype) {
    case FL_COMPLEX64:
    case FL_UINT64:
    case FL_FLOAT64:
      return FL_INT64;
    case FL_COMPLEX32:
    case FL_UINT32:
    case FL_FLOAT32:
      return FL_INT32;
    case FL_UINT16:
    case FL_FLOAT16:
    case FL_BFLOAT16:
      return FL_INT16;
    case FL_FLOAT8_E5M2:
    case FL_FLOAT8_E4M3FN:
    case FL_FLOAT8_E5M2FNUZ:
    case FL_FLOAT8_E4M3FNUZ:
    case FL_FLOAT8_E8M0FNU:
    case FL_BOOL:
      return FL_UINT8;
    default:
      return dtype;
  }
}

std::string compose(Language language, bool has_f64, const Source& source) {
  std::string text;
  if (has_f64) text += "#define FL_F64 1\n";
  text += text_of(language == Language::OpenClC ? "prelude_opencl_c.h" : "prelude_c99.h");
  text += text_of("prelude.h");
  text += source.head;
  text += "typedef struct {\n" + source.members + ";\n} Params;\n" + source.functions;
  text += body_function(source);
  return text + (language == Language::OpenClC ? opencl_entry(source) : c_entry(source));
}

}  // namespace torch_fl::portable
