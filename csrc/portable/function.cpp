// SPDX-License-Identifier: Apache-2.0
#include "function.h"

#include <algorithm>

#include "runtime/error.h"
#include "text.h"

namespace torch_fl::portable {

FunctionCall::FunctionCall(const char* file, const char* function, fl_dtype compute)
    : file_(file), function_(function), compute_(arithmetic(compute)) {}

FunctionCall& FunctionCall::type(const char* name, fl_dtype dtype) {
  defines_.at(n_defines_++) = {name, static_cast<uint32_t>(dtype), true};
  return *this;
}

FunctionCall& FunctionCall::setting(const char* name, uint32_t value) {
  defines_.at(n_defines_++) = {name, value, false};
  return *this;
}

FunctionCall& FunctionCall::words(std::initializer_list<int64_t> values) {
  for (const int64_t value : values) word(value);
  return *this;
}

FunctionCall& FunctionCall::real(double value) {
  return argument(static_cast<int64_t>(bits_of(value, compute_ == FL_FLOAT64)), true);
}

FunctionCall& FunctionCall::pointer(const char* type, fl_address address, bool written) {
  pointers_.at(n_pointers_) = {type, written};
  addresses_.at(n_pointers_++) = address;
  return *this;
}

FunctionCall& FunctionCall::argument(int64_t value, bool is_real) {
  values_.at(n_values_) = value;
  is_real_.at(n_values_++) = is_real;
  return *this;
}

FunctionCall& FunctionCall::part(uint64_t items) {
  parts_.at(n_parts_++) = {n_pointers_, n_values_};
  items_of_parts_ += items;
  return word(static_cast<int64_t>(items_of_parts_));
}

Source FunctionCall::write() const {
  Source source;
  const std::string a = type_name(compute_);
  source.head = "#define A " + a + "\n";
  if (is_floating(compute_)) source.head += "#define FL_FLOATING 1\n";
  if (compute_ == FL_FLOAT32) source.head += "#define FL_F32 1\n";
  for (size_t i = 0; i < n_defines_; ++i) {
    const Define& d = defines_[i];
    const std::string name = d.name;
    if (!d.is_type) {
      source.head += "#define " + name + " " + std::to_string(d.value) + "\n";
      continue;
    }
    const std::string type = type_name(static_cast<fl_dtype>(d.value));
    source.head += "#define " + name + " " + type + "\n";
    for (const char* one_or_vector : {"", "V"}) {
      const std::string to = *one_or_vector == 0 ? "" : "VECTOR_";
      source.head += std::string("#define ") + one_or_vector + "LOAD_" + name + "(p, i) " + to + "LOAD_" + type +
                     "(p, i)\n#define " + one_or_vector + "STORE_" + name + "(p, i, v) " + to + "STORE_" + type +
                     "(p, i, v)\n";
    }
  }
  if (is_floating(compute_)) source.head += math_functions(compute_ == FL_FLOAT32);
  source.head += text_of("sums.h");
  source.head += text_of(file_);
  source.members = "  u64 word[" + std::to_string(std::max<size_t>(n_values_, 1)) + "]";
  for (size_t i = 0; i < n_pointers_; ++i) {
    source.pointers.push_back({pointers_[i].type, "a" + std::to_string(i), pointers_[i].written});
  }
  if (n_parts_ == 0) {
    source.body = "  " + write_call(n_pointers_, n_pointers_, n_values_, n_values_) + "item);\n";
    return source;
  }
  std::string from = "0";
  for (size_t k = 0; k < n_parts_; ++k) {
    const bool last = k + 1 == n_parts_;
    const std::string end = "(i64)p.word[" + std::to_string(parts_[k].value) + "]";
    source.body += "  if (item >= " + from + " && item < " + end + ") " +
                   write_call(parts_[k].pointer, last ? n_pointers_ : parts_[k + 1].pointer, parts_[k].value + 1,
                              last ? n_values_ : parts_[k + 1].value) +
                   "item - " + from + ");\n";
    from = end;
  }
  return source;
}

// What is common to all parts, and these; without the last argument.
std::string FunctionCall::write_call(size_t pointer, size_t pointers_end, size_t value, size_t values_end) const {
  const std::string a = type_name(compute_);
  std::string text = std::string(function_) + "(";
  const auto add_pointers = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) text += "a" + std::to_string(i) + ", ";
  };
  const auto add_values = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const std::string word = "p.word[" + std::to_string(i) + "]";
      text += is_real_[i] ? "BITS_" + a + "(" + word + "), " : "(i64)" + word + ", ";
    }
  };
  add_pointers(0, n_parts_ == 0 ? n_pointers_ : parts_[0].pointer);
  add_pointers(pointer, pointers_end);
  add_values(0, n_parts_ == 0 ? n_values_ : parts_[0].value);
  add_values(value, values_end);
  return text;
}

fl_status FunctionCall::launch(Row& row, const fl_call& call, uint64_t items) {
  VariantKey key;
  for (const char* c = function_; *c != '\0'; ++c) key.add(static_cast<uint32_t>(*c));
  key.add(static_cast<uint32_t>(compute_));
  key.add(static_cast<uint32_t>(n_parts_));
  for (size_t i = 0; i < n_defines_; ++i) key.add(defines_[i].value);
  const fl_module module = row.variant(call, key, [&] { return write(); });
  const auto* some = std::find_if(addresses_.begin(), addresses_.begin() + n_pointers_, [](auto a) { return a != 0; });
  if (some == addresses_.begin() + n_pointers_) throw runtime::Error(FL_INTERNAL, "a launch without any memory");
  Arguments arguments;
  for (size_t i = 0; i < n_pointers_; ++i) arguments.add_address(addresses_[i] != 0 ? addresses_[i] : *some);
  const size_t words = std::max<size_t>(n_values_, 1);
  arguments.add_members(values_.data(), words * sizeof(int64_t));
  return arguments.launch(call, row.device(call), module, items);
}

}  // namespace torch_fl::portable
